-- server_leave: a server says goodbye to a queue.
-- KEYS  1 s · 2 servers · 3 cfg
-- ARGV  1 me
-- Reply 1 if my consumer is gone, 0 if it still holds entries: their leases end by themselves
-- Cost  5 calls
-- Atomic because XGROUP DELCONSUMER drops pending entries for good: only a script that sees none may call it.
local stream, servers, cfg, me = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
look('ZSCORE', servers, me)
local holder = look('HGET', cfg, 'upkeep')
be('stream', stream)
redis.call('ZREM', servers, me)
if holder == me then redis.call('HDEL', cfg, 'upkeep', 'upkeep_end') end
local pending = redis.pcall('XPENDING', stream, GROUP, '-', '+', 1, me)
-- Without a group there is no consumer either.
if pending.err then return 1 end
if #pending > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', stream, GROUP, me)
return 1
