-- Removes consumers whose server is gone and that hold nothing.
--
-- KEYS   1 s  2 servers
-- ARGV   1 ms without a renew and a read after which a consumer is dead
-- Reply  removed consumers
-- Cost   about 1 us a consumer, at most 100 removed at a time
-- Atomic XGROUP DELCONSUMER drops what is pending for good: pending = 0 and the removal are one step.
local dead_after = tonumber(ARGV[1])
local now = clock()
look('ZCARD', KEYS[2])
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], GROUP)
if consumers.err then consumers = {} end
local removed, known = 0, {}
for _, consumer in ipairs(consumers) do
  local fields = {}
  for i = 1, #consumer, 2 do fields[consumer[i]] = consumer[i + 1] end
  known[fields.name] = true
  if removed < 100 and fields.pending == 0 and fields.idle >= dead_after and fields.name ~= RELEASED then
    local renewed = tonumber(redis.call('ZSCORE', KEYS[2], fields.name))
    if not renewed or now - renewed >= dead_after then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], GROUP, fields.name)
      redis.call('ZREM', KEYS[2], fields.name)
      known[fields.name] = nil
      removed = removed + 1
    end
  end
end
-- Servers that never read from this queue have no consumer.
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], '-inf', now - dead_after, 'BYSCORE', 'LIMIT', 0, 100)) do
  if not known[name] then redis.call('ZREM', KEYS[2], name) end
end
return removed
