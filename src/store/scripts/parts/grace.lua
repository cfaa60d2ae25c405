-- Part `grace`: whether anybody may be taken for dead. Needs `look`.
--
-- Fields of `cfg` (all scripts use these names):
--   layout 1 · epoch random text · last_sign ms · grace_end ms · restamp last entry re-stamped ·
--   upkeep consumer · upkeep_end ms · paused since ms (absent = not paused) · paused_by · paused_why ·
--   paused_until ms · paused_position saved position of the group.
--
-- sign(cfg, now, quiet, lease): called by everything a server does at a beat, before its own work.
--   No sign for longer than the quiet gap (or never): Redis was away, so nobody could renew, and grace
--   begins; once, because the sign is written at the same time. A clock that stepped back begins grace
--   too and asks `reclaim` to re-stamp the pending list. Returns the grace end and whether the queue is paused.
local function sign(cfg, now, quiet, lease)
  local found = look('HMGET', cfg, 'last_sign', 'grace_end', 'paused')
  local last, grace_end = tonumber(found[1]), tonumber(found[2]) or 0
  if not last or now < last or now - last > quiet then
    grace_end = now + lease
    redis.call('HSET', cfg, 'last_sign', now, 'grace_end', grace_end)
    if last and now < last then redis.call('HSET', cfg, 'restamp', '-') end
  else
    -- A lease end is never more than two leases ahead, whatever the clock or a hand wrote.
    if grace_end > now + 2 * lease then
      grace_end = now + 2 * lease
      redis.call('HSET', cfg, 'grace_end', grace_end)
    end
    if now > last then redis.call('HSET', cfg, 'last_sign', now) end
  end
  return grace_end, found[3] and true or false
end
