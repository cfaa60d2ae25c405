-- Drops the fields of entries that are gone from `cancel` or `crashes`.
--
-- KEYS   1 s  2 cancel or crashes
-- ARGV   1 cursor, "0" at first
-- Reply  {dropped, next cursor}
-- Cost   about 5 us a field, about 100 at a time
-- Atomic a field is only dropped while its entry does not exist.
look('XLEN', KEYS[1])
local page = look('HSCAN', KEYS[2], ARGV[1], 'COUNT', 100)
local dropped = 0
for i = 1, #page[2], 2 do
  local entry = page[2][i]
  local held = redis.pcall('XPENDING', KEYS[1], GROUP, entry, entry, 1)
  if held.err or not held[1] then
    local there = redis.pcall('XRANGE', KEYS[1], entry, entry)
    if there.err or #there == 0 then dropped = dropped + redis.call('HDEL', KEYS[2], entry) end
  end
end
return {dropped, page[1]}
