-- unpark: puts parked tasks of one name back into the stream, the oldest first.
-- KEYS  1 s · 2 tasks · 3 unknown · 4 unknown:<name> · 5 crashes
-- ARGV  1 name, or name@version · 2 how many
-- Reply how many went back
-- Cost  4 calls per task. <= 100 tasks, <= 256 KiB
-- Atomic because a task must be in exactly one place.
local stream, tasks, names, parked, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local BYTES = 256 * 1024
local most = math.min(tonumber(ARGV[2]), 100)
if most <= 0 then return 0 end
local ids = look('ZRANGE', parked, 0, most - 1)
look('HLEN', tasks)
look('HLEN', crashes)
look('SCARD', names)
be('stream', stream)
local moved, bytes = 0, 0
for _, id in ipairs(ids) do
  if bytes >= BYTES then break end
  local record = record_or_none(tasks, id)
  redis.call('ZREM', parked, id)
  if record and record.s == 'parked' then
    local entry = redis.call('XADD', stream, '*', 'r', record.e)
    if record.c then redis.call('HSET', crashes, entry, record.c) end
    record.s, record.i, record.c, record.n = 'pending', entry, nil, string.match(record.n, '^[^@]*')
    record_set(tasks, id, record)
    bytes = bytes + #record.e
    moved = moved + 1
  end
end
if redis.call('EXISTS', parked) == 0 then redis.call('SREM', names, ARGV[1]) end
return moved
