-- One page of the entries of the stream that are pending, or that are active.
--
-- KEYS   1 s  2 cfg
-- ARGV   1 "pending" or "active"  2 the last entry seen, 0-0 at first  3 look at so many at most
--        4 at most so many bytes  5 only envelopes with these bytes in them; "" is all
-- Reply  {last entry looked at, or "" at the end, {{entry, field, envelope, consumer or "", idle ms, count} ...}}
-- Cost   about 4 us an entry
-- Atomic an entry and its owner are of one moment.
local kind, after, left, room, needle = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local seen, page = after, {}

-- False when the page is full without this entry.
local function add(entry, fields, row)
  room = room - #fields[2]
  if left <= 0 or (room < 0 and seen ~= after) then return false end
  left = left - 1
  seen = entry
  if needle == '' or fields[2]:find(needle, 1, true) then
    page[#page + 1] = {entry, fields[1], fields[2], row and row[2] or '', row and row[3] or 0, row and row[4] or 0}
  end
  return true
end

-- The delivered ones: those of ~released are pending, all others are active. Few at a time, because
-- an entry may be as large as a payload can be.
local from = after
repeat
  local held
  if kind == 'active' then
    held = redis.pcall('XPENDING', KEYS[1], GROUP, '(' .. from, '+', 100)
  else
    held = redis.pcall('XPENDING', KEYS[1], GROUP, '(' .. from, '+', 100, RELEASED)
  end
  if held.err then held = {} end
  for _, row in ipairs(held) do
    from = row[1]
    if kind == 'pending' or row[2] ~= RELEASED then
      local entry = redis.call('XRANGE', KEYS[1], from, from)[1]
      if entry and not add(from, entry[2], row) then return {seen, page} end
    elseif left > 0 then
      left = left - 1
      seen = from
    else
      return {seen, page}
    end
  end
until #held < 100

if kind == 'pending' then
  -- Behind the group's position, which a pause has put away, nothing was delivered.
  local position = redis.call('HGET', KEYS[2], 'paused_position') or position_of(KEYS[1])
  from = seen
  if position and later(position, from) then from = position end
  repeat
    local entries = redis.call('XRANGE', KEYS[1], '(' .. from, '+', 'COUNT', 10)
    for _, entry in ipairs(entries) do
      from = entry[1]
      if not add(from, entry[2]) then return {seen, page} end
    end
  until #entries < 10
end
return {'', page}
