-- Ends one task from outside: cancel, delete, archive, or an expiry that nobody runs into.
--
-- KEYS   1 s  2 tasks  3 clients  4 cancel  5 crashes  6 archived  7 scheduled  8 retry  9 completed
--        10 unknown
--        Undeclared, same slot: unknown:<name of the task>, the receiver of the client
-- ARGV   1 entry or ""  2 task id  3 idle time from which an owner counts as dead, -1: never
--        4 cancelled | deleted | archived | expired  5 client to notify or ""  6 notice
--        7 name  8 envelope  9 reason  10 error (7 to 10: what an archived plain task is kept with)
-- Reply  {"ended"}, {"running", 1 if it was flagged}, {"gone"}
-- Cost   about 80 us
-- Atomic the look at the owner and the removal are one step, so a delivery in between cannot be lost,
--        and the task ends once.
local entry, id, idle, how = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local client, notice = ARGV[5], ARGV[6]
local now = clock()
local base = KEYS[1]:sub(1, -2)
look('XLEN', KEYS[1])
look('HLEN', KEYS[4])
look('HLEN', KEYS[5])
for i = 6, 9 do look('ZCARD', KEYS[i]) end
look('SCARD', KEYS[10])
local counted = counters(base, now)

look('HLEN', KEYS[2])
local readable, record = pcall(record_of, KEYS[2], id)
local recorded = record and true or not readable
if not readable then record = nil end
local state = 'pending'
if record then
  -- The record knows where the task is now; an entry the caller saw may be one of its earlier ones.
  state = record.s
  entry = record.i or ''
  client = record.l or ''
elseif recorded then
  state = 'unreadable'
end
local reader = receiver(base, client)

if state == 'pending' then
  if entry == '' then return {'gone'} end
  local held = redis.pcall('XPENDING', KEYS[1], GROUP, entry, entry, 1)
  local row = not held.err and held[1]
  if row and row[2] ~= RELEASED and (idle < 0 or row[3] < idle) then
    if how ~= 'cancelled' and how ~= 'deleted' then return {'running', 0} end
    redis.call('HSETNX', KEYS[4], entry, now)
    redis.call('PUBLISH', base .. 'wake', 'cancel ' .. entry)
    return {'running', 1}
  end
  if row then redis.call('XACK', KEYS[1], GROUP, entry) end
  local removed = redis.call('XDEL', KEYS[1], entry)
  redis.call('HDEL', KEYS[4], entry)
  redis.call('HDEL', KEYS[5], entry)
  -- Its entry was deleted by hand: with a record the task can still be ended in order.
  if removed == 0 and not record then return {'gone'} end
elseif state == 'scheduled' or state == 'retry' then
  redis.call('ZREM', state == 'retry' and KEYS[8] or KEYS[7], id)
elseif state == 'parked' then
  local name = record.n or ''
  local set = KEYS[10] .. ':' .. name
  redis.call('ZREM', set, id)
  if redis.call('EXISTS', set) == 0 then redis.call('SREM', KEYS[10], name) end
  -- It was parked under its name, or under name@version.
  record.n = name:match('^[^@]*')
else
  -- It has had its outcome: it can only be deleted, and nobody is told a second one.
  if how ~= 'deleted' then return {'gone'} end
  for i = 6, 9 do redis.call('ZREM', KEYS[i], id) end
  reader = nil
end

if how == 'archived' then
  record = record or {e = ARGV[8], n = ARGV[7]}
  record.s, record.k, record.x, record.f, record.o = 'archived', ARGV[9], ARGV[10], now, notice
  -- No `l`: whoever waited is told now, and only once.
  record.i, record.d, record.p, record.l = nil, nil, nil, nil
  record_set(KEYS[2], id, record)
  redis.call('ZADD', KEYS[6], now, id)
elseif recorded then
  forget_task(KEYS[2], id)
end
notify(reader, notice)
count(counted, how, 1)
return {'ended'}
