-- fail: ends one delivery that did not succeed. A stale owner is refused.
-- KEYS  1 s · 2 tasks · 3 scheduled · 4 retry · 5 archived · 6 cancel · 7 crashes · 8 clients · 9 n
--       · 10 r:<client> if one is to be told
-- ARGV  1 me · 2 entry · 3 count · 4 retry|snooze|archive|cancel|expire|discard · 5 task id · 6 name ·
--       7 client or '' · 8 envelope to store · 9 delay ms · 10 reason · 11 error · 12 notice ·
--       13 notice if cancelled · 14 most archived · 15 archive kept ms
-- Reply 0 refused · 1 done · 2 cancelled: the flag won
-- Cost  about 20 calls; archive trims at most 100 records more
-- Atomic because between leaving the stream and entering the next place a crash would lose the task.
-- Undeclared keys of the slot: n:<hour>, n:d:<day>; the channel `wake`.
local stream, tasks, scheduled, retry, archived, cancel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local me, entry, delivered, verdict, task, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local client, envelope, reason = ARGV[7], ARGV[8], ARGV[10]
local base = string.sub(stream, 1, -2)

if not fenced(stream, me, entry, delivered) then return 0 end

local now = clock()
local tally = counters(base, now)
local fields = forgettable(base)
local flagged = look('HEXISTS', cancel, entry) == 1
local record = record_or_none(tasks, task)
local before = earliest(base)
look('ZCARD', archived)
local who = receiver(base, client)

redis.call('XACK', stream, GROUP, entry)
redis.call('XDEL', stream, entry)
forget_entry(fields, entry)

-- The record names another entry, or the task waits or ended elsewhere: this entry was a left-over.
if record and record.i ~= entry then return 1 end

if flagged or verdict == 'cancel' or verdict == 'expire' or verdict == 'discard' then
  if record then forget_task(tasks, task) end
  notify(who, flagged and ARGV[13] or ARGV[12])
  local ended = {cancel = 'cancelled', expire = 'expired', discard = 'discarded'}
  count(tally, flagged and 'cancelled' or ended[verdict], 1)
  return flagged and verdict ~= 'cancel' and 2 or 1
end

local stored = {e = envelope, n = name, f = now}
if reason ~= '' then stored.k = reason end
if ARGV[11] ~= '' then stored.x = ARGV[11] end

if verdict == 'archive' then
  -- No `l`: whoever waited is told now, and only once. `o`: for one whose receiver was lost meanwhile.
  stored.s, stored.o = 'archived', ARGV[12]
  record_set(tasks, task, stored)
  redis.call('ZADD', archived, now, task)
  trim(archived, tasks, now, ARGV[14], ARGV[15])
  notify(who, ARGV[12])
  if reason == 'poison' then
    count(tally, 'poisoned', 1)
  elseif reason ~= 'no_handler' and reason ~= 'operator' then
    count(tally, 'failed', 1)
  end
  count(tally, 'archived', 1)
  return 1
end

-- The delay lives here, in Redis: a server that dies now loses nothing.
local due = now + tonumber(ARGV[9])
stored.d = due
if client ~= '' then stored.l = client end
if verdict == 'retry' then
  stored.s = 'retry'
  redis.call('ZADD', retry, due, task)
  count(tally, 'failed', 1)
  count(tally, 'retried', 1)
else
  -- A snooze is no failure: the task waits as it did before its first run, with the last error kept.
  stored.s = 'scheduled'
  if record then stored.k, stored.x, stored.f = record.k, record.x, record.f else stored.f = nil end
  redis.call('ZADD', scheduled, due, task)
end
record_set(tasks, task, stored)
wake_due(base, before, due)
return 1
