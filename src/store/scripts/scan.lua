-- Looks for the entry of a task by the bytes of its id, in part of the stream. It reads no envelope:
-- the caller does, and goes on if it was chance.
--
-- KEYS   1 s
-- ARGV   1 after this entry  2 look at so many at most  3 the id as bytes  4 the id as text
-- Reply  {last entry looked at, or "" at the end} or {entry, field, envelope, consumer or "", count}
-- Cost   about 4 us an entry
-- Atomic the entry and its owner are of one moment.
local from, left = ARGV[1], tonumber(ARGV[2])
repeat
  local entries = redis.call('XRANGE', KEYS[1], '(' .. from, '+', 'COUNT', 10)
  for _, entry in ipairs(entries) do
    from, left = entry[1], left - 1
    -- The id stands in front, behind a version and a length, also when it is as long as a name may be.
    local head = entry[2][2]:sub(1, 160)
    if head:find(ARGV[3], 1, true) or head:find(ARGV[4], 1, true) then
      local held = redis.pcall('XPENDING', KEYS[1], GROUP, from, from, 1)
      local row = not held.err and held[1]
      return {from, entry[2][1], entry[2][2], row and row[2] or '', row and row[4] or 0}
    end
  end
  if #entries < 10 then return {''} end
until left <= 0
return {from}
