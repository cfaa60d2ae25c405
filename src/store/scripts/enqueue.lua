-- Writes one batch of one client, once, however often it is sent.
--
-- KEYS   1 s  2 producers  3 clients  4 cfg  5 n; with timed tasks also 6 tasks  7 scheduled  8 retry
--        Undeclared, same slot: n:<hour>, n:d:<day>
-- ARGV   1 seven words in one argument (to write one costs a client more than to read it costs here):
--        client, batch number, id of the first task, "1": a repeat, "1": some task wants its outcome,
--        number of timed tasks, epoch the client knows
--        then for each timed task: its place in the batch (from 1), id, name, client to notify or "",
--        "after" or "at", milliseconds; then the envelope of every task in order
-- Reply  words in one text:
--        stored, epoch, first entry or nothing, places that were scheduled, as 3,7
--        unknown, epoch    a repeat of which nobody can know whether it was written
--        clash             another client uses this client id
-- Cost   about 60 us a batch and 3.5 us a plain task (2.5 us is its XADD), 17 us a scheduled one
-- Atomic the batch number and its tasks are written together or not at all: that is what makes a
--        repeat safe. Without allow-oom, so a full Redis refuses the whole batch before any of it.
local client, number, first_id, again, tracked, timed, known =
  ARGV[1]:match('^(%S+) (%d+) (%S+) ([01]) ([01]) (%d+) (%S*)$')
number, timed = tonumber(number), tonumber(timed)
local now = clock()
local base = KEYS[1]:sub(1, -2)

-- Reads first: each of them fails on a key of another type, and nothing is written yet.
local stored = look('HGET', KEYS[2], client)
look('ZCARD', KEYS[3])
local epoch = look('HGET', KEYS[4], 'epoch') or ''
look('XLEN', KEYS[1])
local counted = counters(base, now)
local before
if timed > 0 then
  look('HLEN', KEYS[6])
  before = earliest(base)
end

local function answer(first, places)
  return 'stored ' .. epoch .. ' ' .. first .. ' ' .. places
end

local last, last_id, swept, last_entry, last_places
if stored then
  local n
  n, last_id, swept, last_entry, last_places = stored:match('^(%d+) (%S+) %d+ ([01]) (%S*) (%S*)$')
  last = tonumber(n)
end
if last == number then
  if last_id == first_id then return answer(last_entry, last_places) end
  return 'clash'
end
if again == '1' then
  if epoch == '' or known ~= epoch or (last and last > number) then return 'unknown ' .. epoch end
elseif last and last > number then
  return 'clash'
end

local first_arg = 2 + 6 * timed
local due, places, next_due = {}, {}, nil
for i = 2, first_arg - 1, 6 do
  local at = tonumber(ARGV[i + 5])
  if ARGV[i + 4] == 'after' then at = now + at end
  if at > now then
    due[tonumber(ARGV[i])] = {i, at}
    places[#places + 1] = ARGV[i]
    if not next_due or at < next_due then next_due = at end
  end
end
local joined = table.concat(places, ',')

-- All entries of a batch share a millisecond, so its reply is one id and a count.
local first, rest = '', nil
local call, stream, args = redis.call, KEYS[1], ARGV
for i = first_arg, #args do
  local timing = next_due and due[i - first_arg + 1]
  if timing then
    local at = timing[1]
    local id = ARGV[at + 1]
    local record = {s = 'scheduled', e = ARGV[i], d = timing[2], n = ARGV[at + 2]}
    if ARGV[at + 3] ~= '' then record.l = ARGV[at + 3] end
    record_set(KEYS[6], id, record)
    redis.call('ZADD', KEYS[7], timing[2], id)
  elseif rest then
    call('XADD', stream, rest, 't', args[i])
  else
    first = call('XADD', stream, '*', 't', args[i])
    rest = first:match('^%d+') .. '-*'
  end
end
redis.call('HSET', KEYS[2], client, string.format('%d %s %.0f %s %s %s',
  number, first_id, now, swept or '0', first, joined))
if tracked == '1' then redis.call('ZADD', KEYS[3], now, client) end
count(counted, 'enqueued', #ARGV - first_arg + 1)
if next_due then wake_due(base, before, next_due) end
return answer(first, joined)
