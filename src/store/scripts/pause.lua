-- Stops delivery: the group's position is set behind every entry there can be.
--
-- KEYS   1 s  2 cfg
-- ARGV   1 by whom  2 why  3 until, ms, or ""
-- Reply  1 paused, 0 the stream or its group is missing: ensure, and again
-- Cost   about 40 us
-- Atomic the position is saved and replaced in one step: whatever is delivered is in front of the saved
--        one, and a second pause does not save the maximum.
local MAX = '18446744073709551615-18446744073709551615'
local now = clock()
local since = look('HGET', KEYS[2], 'paused')
local position = position_of(KEYS[1])
if not position then return 0 end
-- Also while paused the position may be another: somebody made the group again by hand.
if position ~= MAX then
  redis.call('HSET', KEYS[2], 'paused_position', position)
  redis.call('XGROUP', 'SETID', KEYS[1], GROUP, MAX)
end
if not since then redis.call('HSET', KEYS[2], 'paused', now) end
redis.call('HSET', KEYS[2], 'paused_by', ARGV[1], 'paused_why', ARGV[2])
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[2], 'paused_until', ARGV[3])
else
  redis.call('HDEL', KEYS[2], 'paused_until')
end
return 1
