-- Part `archive`: bounds the archive. Needs `look`, `forget`.
-- trim(archived, tasks, now, most, keep): drops the oldest beyond `most` and those older than `keep` ms,
--   each with its record, at most 100 in all. The caller checked both keys. Returns how many went.
local TRIMMED_AT_ONCE = 100

local function trim(archived, tasks, now, most, keep)
  local over = redis.call('ZCARD', archived) - tonumber(most)
  local old = redis.call('ZCOUNT', archived, '-inf', '(' .. string.format('%.0f', now - keep))
  local drop = math.min(TRIMMED_AT_ONCE, math.max(over, old))
  if drop <= 0 then return 0 end
  for _, id in ipairs(redis.call('ZRANGE', archived, 0, drop - 1)) do forget_task(tasks, id) end
  redis.call('ZREMRANGEBYRANK', archived, 0, drop - 1)
  return drop
end
