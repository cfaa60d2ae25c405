-- Trims what is kept after its end: first by age, then by number, the oldest first.
--
-- KEYS   1 archived or completed  2 tasks
-- ARGV   1 ms a task is kept  2 how many are kept
-- Reply  removed tasks; 100: there may be more
-- Cost   about 3 us a task, at most 100 at a time
-- Atomic a task that was put back to work in between keeps its record.
local now = clock()
look('HLEN', KEYS[2])
local kept = look('ZCARD', KEYS[1])
local ids = redis.call('ZRANGE', KEYS[1], '-inf', now - tonumber(ARGV[1]), 'BYSCORE', 'LIMIT', 0, 100)
local over = math.min(kept - tonumber(ARGV[2]), 100)
if over > #ids then ids = redis.call('ZRANGE', KEYS[1], 0, over - 1) end
for _, id in ipairs(ids) do
  redis.call('ZREM', KEYS[1], id)
  forget_task(KEYS[2], id)
end
return #ids
