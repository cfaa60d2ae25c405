-- renew: extends what is mine, in one page of ids; never takes anything from anybody.
-- KEYS  1 s · 2 cfg · 3 servers · 4 cancel · 5 crashes
-- ARGV  1 me · 2 interval ms · 3 quiet gap ms · 4 lease ms · 5 start of the page (- or exclusive) ·
--       6 end of the page (+ or inclusive) · 7... pairs (entry, count) that I hold in it, ascending, <= 100
-- Reply {now, paused 0|1, last id judged or '' for the whole page, {lost}, {moved id, count ...},
--        {cancelled}, {deliveries that are mine, not listed and older than one interval}}
-- Cost  1 page of XPENDING (listed + 100), XCLAIM of those idle longer than half the interval, and XRANGE
--       per unlisted one. A short task is never claimed, because it was settled before
-- Atomic because XCLAIM knows no owner: between a look at the owner and the claim the entry may change hands.
local stream, cfg, servers, cancel, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, interval, FIRST_HELD = ARGV[1], tonumber(ARGV[2]), 7
local base = string.sub(stream, 1, -2)
local UNLISTED_AT_ONCE = 100

-- Whether entry id `a` stands behind `b`.
local function behind(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)-(%d+)$')
  a_ms, b_ms = tonumber(a_ms), tonumber(b_ms)
  return a_ms > b_ms or (a_ms == b_ms and tonumber(a_seq) > tonumber(b_seq))
end

local listed, mixed, held = {}, {}, 0
for a = FIRST_HELD, #ARGV, 2 do
  local id = ARGV[a]
  -- Two deliveries of one entry in one process: one of them is out of date.
  if listed[id] and listed[id] ~= tonumber(ARGV[a + 1]) then mixed[id] = true end
  listed[id] = tonumber(ARGV[a + 1])
  held = held + 1
end

local limit = held + UNLISTED_AT_ONCE
local rows = look('XPENDING', stream, GROUP, ARGV[5], ARGV[6], limit, me)
local fields = forgettable(base)
local flags = look('HLEN', cancel) > 0
look('ZSCORE', servers, me)
local now = clock()
local _, paused = sign(cfg, now, tonumber(ARGV[3]), tonumber(ARGV[4]))
redis.call('ZADD', servers, now, me)

local judged = #rows == limit and rows[#rows][1] or ''
local mine, old, extend = {}, {}, {}
for _, row in ipairs(rows) do
  if listed[row[1]] then
    mine[row[1]] = row[4]
    if row[3] * 2 > interval then extend[#extend + 1] = row[1] end
  elseif row[3] > interval then
    old[#old + 1] = row
  end
end

local extended = claim(stream, me, extend)
for _, id in ipairs(extend) do
  if not extended[id] then
    -- Deleted by hand while it was running: there is nothing left to finish.
    mine[id] = nil
    forget_entry(fields, id)
  end
end

local lost, moved, cancelled, seen = {}, {}, {}, {}
for a = FIRST_HELD, #ARGV, 2 do
  local id = ARGV[a]
  if not seen[id] and (judged == '' or not behind(id, judged)) then
    seen[id] = true
    if not mine[id] then
      lost[#lost + 1] = id
    else
      if mixed[id] or mine[id] ~= listed[id] then
        moved[#moved + 1] = id
        moved[#moved + 1] = mine[id]
      end
      if flags and redis.call('HEXISTS', cancel, id) == 1 then cancelled[#cancelled + 1] = id end
    end
  end
end

-- Their idle time is left as it is: if nobody here takes them up, the lease ends and others do.
local unlisted, bytes = {}, 0
for _, row in ipairs(old) do
  if bytes >= REPLY_BYTES then break end
  local found, size = adopt(stream, fields, crashes, row)
  if found then
    unlisted[#unlisted + 1] = found
    bytes = bytes + size
  end
end

return {now, paused and 1 or 0, judged, lost, moved, cancelled, unlisted}
