-- upkeep_lock: who does a queue's upkeep for the next seconds. Only saves work: every upkeep script may be
-- run by many at once.
-- KEYS  1 s · 2 cfg · 3 servers · 4 scheduled · 5 retry
-- ARGV  1 me · 2 hold ms · 3 quiet gap ms · 4 lease ms
-- Reply {mine 0|1, servers seen, now, next due ms or -1, paused 0|1, pause is over 0|1}
-- Cost  about 10 calls
-- Atomic because two servers must not both get it.
local stream, cfg, servers, me, hold = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2])
local lease, base = tonumber(ARGV[4]), string.sub(KEYS[1], 1, -2)
local now = clock()
be('stream', stream)
local seen = look('ZCOUNT', servers, now - 2 * lease, '+inf')
local due = earliest(base)
local _, paused = sign(cfg, now, tonumber(ARGV[3]), lease)
local found = redis.call('HMGET', cfg, 'upkeep', 'upkeep_end', 'paused_until')
local holder, held_until = found[1], tonumber(found[2]) or 0
-- An end further ahead than any holder may ask for was written by a clock that stepped back since.
local mine = not holder or holder == me or held_until <= now or held_until > now + 2 * hold
if mine then
  redis.call('HSET', cfg, 'upkeep', me, 'upkeep_end', now + hold)
  -- A wake-up is a hint and may have been lost: repeated while anything is left.
  if not paused then
    local left = redis.pcall('XPENDING', stream, GROUP, '-', '+', 1, RELEASED)
    if not left.err and #left > 0 then redis.call('PUBLISH', base .. 'wake', 'released') end
  end
end
local over = paused and tonumber(found[3]) and tonumber(found[3]) <= now
return {mine and 1 or 0, seen, now, due or -1, paused and 1 or 0, over and 1 or 0}
