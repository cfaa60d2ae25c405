-- reclaim: takes entries whose owner let the lease run out.
-- KEYS  1 s · 2 cfg · 3 crashes · 4 cancel · 5 n
-- ARGV  1 me · 2 room · 3 room for a suspect 0|1 · 4 lease ms · 5 quiet gap ms · 6 cursor (- or exclusive)
-- Reply {now, next cursor, more 0|1, refreshed, {deliveries}, grace end or 0, paused 0|1}
-- Cost  at most 10 probes of 100 matches (two numbers compared per pending entry up to the end bound), and
--       3 calls per entry taken. <= 100 entries, <= 256 KiB
-- Atomic because between the probe and the claim the owner may renew.
-- Undeclared keys of the slot: n:<hour>, n:d:<day>.
local stream, cfg, crashes = KEYS[1], KEYS[2], KEYS[3]
local me, room, suspect_room = ARGV[1], math.min(tonumber(ARGV[2]), 100), ARGV[3] == '1'
local lease, cursor = tonumber(ARGV[4]), ARGV[6]
local base = string.sub(stream, 1, -2)
local PAGE, PAGES = 100, 10

look('XPENDING', stream, GROUP, '-', '+', 1)
local now = clock()
local tally = counters(base, now)
local fields = forgettable(base)
local grace_end, paused = sign(cfg, now, tonumber(ARGV[5]), lease)

-- After a clock stepped back, what was delivered before it looks delivered in the future: no idle time
-- would ever show a dead owner until the clock caught up. Each page is stamped with the new time.
local restamp = redis.call('HGET', cfg, 'restamp')
if restamp then
  local rows = redis.call('XPENDING', stream, GROUP, restamp, '+', PAGE)
  local owners = {}
  for _, row in ipairs(rows) do
    if row[3] == 0 then
      owners[row[2]] = owners[row[2]] or {}
      table.insert(owners[row[2]], row[1])
    end
  end
  for owner, ids in pairs(owners) do
    local stamped = claim(stream, owner, ids)
    for _, id in ipairs(ids) do
      if not stamped[id] then forget_entry(fields, id) end
    end
  end
  local more = #rows == PAGE
  if more then
    redis.call('HSET', cfg, 'restamp', '(' .. rows[#rows][1])
  else
    redis.call('HDEL', cfg, 'restamp')
  end
  return {now, '-', more and 1 or 0, 0, {}, grace_end, paused and 1 or 0}
end

if paused or now < grace_end or room <= 0 then
  return {now, cursor, 0, 0, {}, now < grace_end and grace_end or 0, paused and 1 or 0}
end

-- An entry idle for a lease was added at least that long ago: the end bound keeps the probe off younger
-- ones. Not while ids run ahead of a clock that stepped back.
local upper = string.format('%.0f', now - lease)
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local about = {}
  for f = 1, #group, 2 do about[group[f]] = group[f + 1] end
  if about.name == GROUP and tonumber(string.match(about['last-delivered-id'], '^%d+')) > now then upper = '+' end
end

local taken, bytes, refreshed, owners = {}, 0, 0, {}

-- The entry is mine now. The first reclaim is nobody's fault; one that finds the mark makes a suspect.
local function take(entry)
  local id = entry[1]
  local seen = redis.call('HGET', crashes, id)
  if not seen then redis.call('HSET', crashes, id, 0) end
  local row = redis.call('XPENDING', stream, GROUP, id, id, 1, me)[1]
  taken[#taken + 1] = delivery(id, row[4], entry[2], seen or 0, seen)
  bytes = bytes + #(entry[2][2] or '')
  if seen then suspect_room = false end
end

local function full()
  return #taken >= room or bytes >= REPLY_BYTES
end

local function recover(id)
  local probe = redis.call('XPENDING', stream, GROUP, 'IDLE', lease, id, id, 1)[1]
  if not probe or probe[2] == me or probe[2] == RELEASED then return end
  if not suspect_room and redis.call('HEXISTS', crashes, id) == 1 then return end
  local came = redis.call('XAUTOCLAIM', stream, GROUP, me, lease, id, 'COUNT', 1)
  for _, gone in ipairs(came[3]) do forget_entry(fields, gone) end
  local entry = came[2][1]
  if not entry then return end
  -- XAUTOCLAIM scans on when the asked id was deleted: a later entry may have come instead. One that was
  -- mine runs already, and one whose former owner is not known is left to `renew` to be found.
  local owner = entry[1] == id and probe[2] or owners[entry[1]]
  if owner == RELEASED then
    local row = redis.call('XPENDING', stream, GROUP, entry[1], entry[1], 1, me)[1]
    local seen = redis.call('HGET', crashes, entry[1])
    taken[#taken + 1] = delivery(entry[1], row[4], entry[2], seen, (tonumber(seen) or 0) > 0)
    bytes = bytes + #(entry[2][2] or '')
  elseif owner and owner ~= me then
    take(entry)
  else
    refreshed = refreshed + 1
  end
end

local more = 1
for _ = 1, PAGES do
  local rows = redis.call('XPENDING', stream, GROUP, 'IDLE', lease, cursor, upper, PAGE)
  for _, row in ipairs(rows) do owners[row[1]] = row[2] end
  for _, row in ipairs(rows) do
    if full() then break end
    recover(row[1])
    cursor = '(' .. row[1]
  end
  if full() then break end
  if #rows < PAGE then
    cursor, more = '-', 0
    break
  end
end
count(tally, 'reclaimed', #taken)
return {now, cursor, more, refreshed, taken, 0, 0}
