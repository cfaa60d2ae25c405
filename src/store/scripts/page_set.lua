-- One page of the tasks of a sorted set, with their records, the lowest score first.
--
-- KEYS   1 the sorted set  2 tasks
-- ARGV   1 score of the last one seen or ""  2 its id  3 at most so many  4 at most so many bytes
-- Reply  {{id, score, record or ""} ...}
-- Cost   about 3 us a task
-- Atomic an id and its record are of one moment.
local most, room = tonumber(ARGV[3]), tonumber(ARGV[4])
local from = 0
if ARGV[1] ~= '' then
  local score = tonumber(ARGV[1])
  local still = redis.call('ZSCORE', KEYS[1], ARGV[2])
  if still and tonumber(still) == score then
    from = redis.call('ZRANK', KEYS[1], ARGV[2]) + 1
  else
    -- It has left the set: go on behind the place where it was. Equal scores are in the order of ids;
    -- beyond a thousand of them some are shown again.
    from = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[1])
    local equal = redis.call('ZRANGE', KEYS[1], from, from + 999, 'WITHSCORES')
    for i = 1, #equal, 2 do
      if tonumber(equal[i + 1]) ~= score or equal[i] > ARGV[2] then break end
      from = from + 1
    end
  end
end
local rows = redis.call('ZRANGE', KEYS[1], from, from + most - 1, 'WITHSCORES')
local page = {}
for i = 1, #rows, 2 do
  local record = redis.call('HGET', KEYS[2], rows[i]) or ''
  room = room - #record
  if room < 0 and #page > 0 then break end
  page[#page + 1] = {rows[i], rows[i + 1], record}
end
return page
