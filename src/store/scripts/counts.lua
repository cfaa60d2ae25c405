-- How many tasks a queue holds in each state, and whether it is paused.
--
-- KEYS   1 s  2 cfg  3 scheduled  4 retry  5 archived  6 completed  7 unknown
--        Undeclared, same slot: unknown:<name>
-- ARGV   none
-- Reply  {entries, pending in the group, of those released, scheduled, retry, archived, completed, parked,
--        {by, why, until or "", since} or {}, now}
-- Cost   about 40 us, and 0.3 us a consumer
-- Atomic the numbers are of one moment: pending = entries - delivered + released is exact only so.
local entries = redis.call('XLEN', KEYS[1])
local delivered, released = 0, 0
local summary = redis.pcall('XPENDING', KEYS[1], GROUP)
if not summary.err then
  delivered = summary[1]
  for _, row in ipairs(summary[4] or {}) do
    if row[1] == RELEASED then released = tonumber(row[2]) end
  end
end
local parked = 0
for _, name in ipairs(redis.call('SMEMBERS', KEYS[7])) do
  parked = parked + redis.call('ZCARD', KEYS[7] .. ':' .. name)
end
local paused = {}
local pause = redis.call('HMGET', KEYS[2], 'paused', 'paused_by', 'paused_why', 'paused_until')
if pause[1] then paused = {pause[2] or '', pause[3] or '', pause[4] or '', pause[1]} end
return {entries, delivered, released, redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[4]),
  redis.call('ZCARD', KEYS[5]), redis.call('ZCARD', KEYS[6]), parked, paused, clock()}
