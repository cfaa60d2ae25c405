-- park: puts aside a task whose name or version this server does not know, for servers that do.
-- KEYS  1 s · 2 tasks · 3 unknown · 4 unknown:<name> · 5 cancel · 6 crashes · 7 clients · 8 n
--       · 9 r:<client> if one is to be told
-- ARGV  1 me · 2 entry · 3 count · 4 task id · 5 name, or name@version · 6 client or '' · 7 envelope · 8 notice if cancelled
-- Reply 0 refused · 1 parked, or ended because it was flagged as cancelled
-- Cost  about 15 calls
-- Atomic because between leaving the stream and being parked a crash would lose the task.
-- Undeclared keys of the slot: n:<hour>, n:d:<day>.
local stream, tasks, names, parked, cancel, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local me, entry, task, name, client = ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6]
local base = string.sub(stream, 1, -2)

if not fenced(stream, me, entry, ARGV[3]) then return 0 end

local now = clock()
local tally = counters(base, now)
local fields = forgettable(base)
local flagged = look('HEXISTS', cancel, entry) == 1
local seen = look('HGET', crashes, entry)
local record = record_or_none(tasks, task)
local who = receiver(base, client)
look('SCARD', names)
look('ZCARD', parked)

redis.call('XACK', stream, GROUP, entry)
redis.call('XDEL', stream, entry)
forget_entry(fields, entry)
if record and record.i ~= entry then return 1 end
if flagged then
  if record then forget_task(tasks, task) end
  notify(who, ARGV[8])
  count(tally, 'cancelled', 1)
  return 1
end

record = record or {}
record.s, record.e, record.n, record.i, record.d = 'parked', ARGV[7], name, nil, nil
record.l = client ~= '' and client or nil
record.c = tonumber(seen)
-- The first time counts: a task that servers park again and again must come to its end.
record.p = record.p or now
record_set(tasks, task, record)
redis.call('SADD', names, name)
redis.call('ZADD', parked, record.p, task)
return 1
