-- release: hands deliveries back without a run or an attempt being counted.
-- KEYS  1 s · 2 crashes · 3 cancel
-- ARGV  1 me · then triples (entry, count, begun 0|1), <= 100
-- Reply how many were handed back; the others were not mine any more
-- Cost  1 call per item, one XCLAIM, one PUBLISH
-- Atomic because XCLAIM knows no owner. The reserved consumer `~released` keeps them out of my pending list,
-- where they would look like deliveries nobody saw, and out of everybody's lease.
local stream, crashes, me = KEYS[1], KEYS[2], ARGV[1]
local base = string.sub(stream, 1, -2)
local fields = forgettable(base)
local ids, begun = {}, {}
for a = 2, #ARGV, 3 do
  if fenced(stream, me, ARGV[a], ARGV[a + 1]) then
    ids[#ids + 1] = ARGV[a]
    begun[ARGV[a]] = ARGV[a + 2] == '1'
  end
end
local handed, n = claim(stream, RELEASED, ids), 0
for _, id in ipairs(ids) do
  if not handed[id] then
    forget_entry(fields, id)
  else
    n = n + 1
    -- It was counted ahead by `begin`, and the server did not die of it.
    if begun[id] and (tonumber(redis.call('HGET', crashes, id)) or 0) > 0 then
      redis.call('HINCRBY', crashes, id, -1)
    end
  end
end
if n > 0 then redis.call('PUBLISH', base .. 'wake', 'released') end
return n
