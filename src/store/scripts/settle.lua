-- settle: a batch of successes of one queue. The first completion of an entry wins, whoever sends it.
-- KEYS  1 s · 2 clients · 3 cancel · 4 crashes · 5 n · 6... r:<client> of each client to tell ·
--       then tasks, if an item has a record
-- ARGV  1 one byte per item: which of KEYS 6... is told, 0 = nobody · 2... the n entry ids · then the
--       n notices · then pairs (item, task id) of items with a record · then, in strict mode, me
-- Reply n if all won; else one byte per item, '1' won or '0' gone
-- Cost  n = 100: 6.7 us an item (4.1 without notices), of which 0.9 are counters, checks and fields; n = 1:
--       60 us, mostly the fixed price of about 13 calls from Lua [M]. n <= 100, <= 256 KiB
-- Atomic because a crash between removing the entry and telling the client would lose the outcome.
-- Undeclared keys of the slot: n:<hour>, n:d:<day> (named by the time of Redis).
local stream, told = KEYS[1], ARGV[1]
local n, base = #told, string.sub(stream, 1, -2)
local FIRST_ID, FIRST_RECEIVER = 2, 6
-- Without me the number of arguments is odd.
local strict = #ARGV % 2 == 0
local me, last_pair = ARGV[#ARGV], strict and #ARGV - 1 or #ARGV
local tasks, last_receiver = nil, #KEYS
if last_pair >= FIRST_ID + 2 * n then
  tasks, last_receiver = KEYS[#KEYS], #KEYS - 1
end

-- Reads first: a key of another type ends the script here, with nothing written.
local tally = counters(base, clock())
local fields = forgettable(base)
local receivers = {}
for k = FIRST_RECEIVER, last_receiver do
  receivers[k - FIRST_RECEIVER + 1] = receiver(base, string.sub(KEYS[k], #base + 3))
end
local records = {}
for a = FIRST_ID + 2 * n, last_pair, 2 do
  local item, task = tonumber(ARGV[a]), ARGV[a + 1]
  local record = record_or_none(tasks, task)
  -- A record that names another entry belongs to a later delivery of the task and stays.
  if record == nil or record.i == ARGV[FIRST_ID + item - 1] then records[item] = task end
end

local function end_item(item)
  if records[item] then forget_task(tasks, records[item]) end
  notify(receivers[string.byte(told, item)], ARGV[FIRST_ID + n + item - 1])
end

-- Every end of an entry is XACK + XDEL in one script. So when all ids were pending until now, nobody
-- ended any of them before: no check per id is needed.
if not strict
  and look('XACK', stream, GROUP, unpack(ARGV, FIRST_ID, FIRST_ID + n - 1)) == n then
  redis.call('XDEL', stream, unpack(ARGV, FIRST_ID, FIRST_ID + n - 1))
  for _, key in ipairs(fields) do
    redis.call('HDEL', key, unpack(ARGV, FIRST_ID, FIRST_ID + n - 1))
  end
  for item = 1, n do end_item(item) end
  count(tally, 'succeeded', n)
  return n
end

local answer, won = {}, 0
for item = 1, n do
  local id = ARGV[FIRST_ID + item - 1]
  local first
  if not strict then
    first = redis.call('XDEL', stream, id) == 1
  else
    -- After a failover an id may have been given out again: only what is pending with me is mine.
    first = look('XPENDING', stream, GROUP, id, id, 1, me)[1] ~= nil
    if first then
      redis.call('XACK', stream, GROUP, id)
      redis.call('XDEL', stream, id)
    end
  end
  if first then
    forget_entry(fields, id)
    end_item(item)
    won = won + 1
  end
  answer[item] = first and '1' or '0'
end
count(tally, 'succeeded', won)
if won == n then return n end
return table.concat(answer)
