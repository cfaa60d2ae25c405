-- The tasks that were parked for longer than the grace, for the caller to archive.
--
-- KEYS   1 unknown  2 tasks
--        Undeclared, same slot: unknown:<name>
-- ARGV   1 ms of grace  2 at most so many  3 at most so many bytes
-- Reply  {{id, record} ...}
-- Cost   about 3 us a task and 1 us a name
-- Atomic ids and records are of one moment. It writes only to drop ids without a record and names
--        without ids.
local now = clock()
local before, most, room = now - tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local overdue = {}
look('HLEN', KEYS[2])
for _, name in ipairs(look('SMEMBERS', KEYS[1])) do
  local set = KEYS[1] .. ':' .. name
  local ids = look('ZRANGE', set, '-inf', before, 'BYSCORE', 'LIMIT', 0, most)
  for _, id in ipairs(ids) do
    local record = redis.call('HGET', KEYS[2], id)
    if record then
      room = room - #record
      if #overdue >= most or (room < 0 and #overdue > 0) then return overdue end
      overdue[#overdue + 1] = {id, record}
    else
      redis.call('ZREM', set, id)
    end
  end
  if redis.call('EXISTS', set) == 0 then redis.call('SREM', KEYS[1], name) end
end
return overdue
