-- Goes on with delivery where the pause stopped it.
--
-- KEYS   1 s  2 cfg
-- ARGV   1 "1": only if the pause was until a time that has come
-- Reply  1 resumed, 0 nothing to do, -1 the group is missing: ensure, and again
-- Cost   about 40 us
-- Atomic between the look at the pause and its end somebody may pause again.
local now = clock()
if look('HEXISTS', KEYS[2], 'paused') == 0 then return 0 end
if ARGV[1] == '1' then
  local till = redis.call('HGET', KEYS[2], 'paused_until')
  if not till or tonumber(till) > now then return 0 end
end
local position = redis.call('HGET', KEYS[2], 'paused_position') or '0-0'
local set = redis.pcall('XGROUP', 'SETID', KEYS[1], GROUP, position)
if set.err then
  if redis.call('EXISTS', KEYS[1]) == 1 and not set.err:find('NOGROUP', 1, true) then return set end
  return -1
end
redis.call('HDEL', KEYS[2], 'paused', 'paused_by', 'paused_why', 'paused_until', 'paused_position')
redis.call('PUBLISH', KEYS[1]:sub(1, -2) .. 'wake', 'resume')
return 1
