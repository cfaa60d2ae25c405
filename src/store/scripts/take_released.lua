-- take_released: takes what others handed back, lowest ids first. Needs no lease to end and no grace.
-- KEYS  1 s · 2 cfg · 3 crashes · 4 cancel
-- ARGV  1 me · 2 room
-- Reply {deliveries}
-- Cost  1 probe, 2 calls per entry. <= 100 entries, <= 256 KiB
-- Atomic because two servers must not take the same entry. XCLAIM without JUSTID: the count rises, so the
-- fence of the run to come is above that of the run that was handed back.
local stream, cfg, crashes, me, room = KEYS[1], KEYS[2], KEYS[3], ARGV[1], math.min(tonumber(ARGV[2]), 100)
if room <= 0 or look('HGET', cfg, 'paused') then return {} end
local base = string.sub(stream, 1, -2)
local rows = look('XPENDING', stream, GROUP, '-', '+', room, RELEASED)
local fields = forgettable(base)
local taken, bytes = {}, 0
for _, row in ipairs(rows) do
  if bytes >= REPLY_BYTES then break end
  local entry = redis.call('XCLAIM', stream, GROUP, me, 0, row[1])[1]
  if entry then
    local seen = redis.call('HGET', crashes, row[1])
    taken[#taken + 1] = delivery(row[1], row[4] + 1, entry[2], seen, (tonumber(seen) or 0) > 0)
    bytes = bytes + #(entry[2][2] or '')
  else
    forget_entry(fields, row[1])
  end
end
return taken
