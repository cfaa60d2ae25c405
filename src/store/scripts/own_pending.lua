-- own_pending: what Redis thinks I hold, to compare with what I know. Changes no count and no idle time,
-- as XREADGROUP with an id would, so it may be asked at any time.
-- KEYS  1 s · 2 crashes · 3 cancel
-- ARGV  1 me · 2 start (exclusive) · 3 how many
-- Reply {last id looked at or '' at the end, {deliveries}}
-- Cost  1 probe, 2 calls per entry. <= 100 entries, <= 256 KiB
-- Atomic because an entry must not be gone between the probe and the look at its body.
local stream, crashes, me, most = KEYS[1], KEYS[2], ARGV[1], math.min(tonumber(ARGV[3]), 100)
local rows = look('XPENDING', stream, GROUP, ARGV[2], '+', most, me)
local fields = forgettable(string.sub(stream, 1, -2))
local found, bytes, last = {}, 0, ''
for k, row in ipairs(rows) do
  if bytes >= REPLY_BYTES then break end
  local mine, size = adopt(stream, fields, crashes, row)
  if mine then
    found[#found + 1] = mine
    bytes = bytes + size
  end
  last = (k == #rows and #rows < most) and '' or row[1]
end
return {last, found}
