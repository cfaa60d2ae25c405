-- Moves due scheduled and retry tasks into the stream, the longest due first.
--
-- KEYS   1 s  2 tasks  3 scheduled  4 retry  5 archived
-- ARGV   1 at most so many  2 at most so many bytes of envelopes (one task may exceed it)
-- Reply  {moved, next due time or -1, now}; a next due time not after now: call again
-- Cost   about 18 us a task, most of it for its record; 60 us when nothing is due
-- Atomic a task is in exactly one of the sets and the stream at any time.
local now = clock()
local most, room = tonumber(ARGV[1]), tonumber(ARGV[2])
local base = KEYS[1]:sub(1, -2)
look('XLEN', KEYS[1])
look('HLEN', KEYS[2])
look('ZCARD', KEYS[5])
local counted = counters(base, now)

local due = {}
for place = 3, 4 do
  local page = look('ZRANGE', KEYS[place], '-inf', now, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
  for i = 1, #page, 2 do due[#due + 1] = {page[i], tonumber(page[i + 1]), KEYS[place], #due} end
end
-- table.sort is not stable, and ties keep the order of the sets.
table.sort(due, function(a, b)
  if a[2] ~= b[2] then return a[2] < b[2] end
  return a[4] < b[4]
end)

local moved, gone, records = 0, {[KEYS[3]] = {}, [KEYS[4]] = {}}, {}
for i = 1, math.min(#due, most) do
  local id, left = due[i][1], gone[due[i][3]]
  local readable, record = pcall(record_of, KEYS[2], id)
  if readable and record then
    if moved > 0 and #record.e > room then break end
    record.s, record.d = 'pending', nil
    record.i = redis.call('XADD', KEYS[1], '*', 'r', record.e)
    records[#records + 1], records[#records + 2] = id, cmsgpack.pack(record)
    moved, room = moved + 1, room - #record.e
  elseif not readable then
    -- Not written by us. It may not block the tasks behind it, and somebody should look at it.
    redis.call('ZADD', KEYS[5], now, id)
    count(counted, 'archived', 1)
  end
  left[#left + 1] = id
end
-- At most 100 ids and 200 arguments: few enough to unpack.
for set, ids in pairs(gone) do
  if #ids > 0 then redis.call('ZREM', set, unpack(ids)) end
end
if moved > 0 then redis.call('HSET', KEYS[2], unpack(records)) end

return {moved, math.ceil(earliest(base) or -1), now}
