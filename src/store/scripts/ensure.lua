-- ensure: makes a queue's stream, group and epoch, or what of them is missing.
-- KEYS  1 s · 2 cfg
-- ARGV  1 epoch if a new one is needed · 2 layout version · 3 quiet gap ms or '' · 4 lease ms or ''
--       (3 and 4 only from a server: a client's call is no sign of a server)
-- Reply {now, data was lost 0|1, epoch}
-- Cost  6 calls
-- Atomic because the group and the epoch that stands for it must not come from two callers.
local stream, cfg, layout = KEYS[1], KEYS[2], ARGV[2]
local LAST_ID = '18446744073709551615-18446744073709551615'
be('stream', stream)
local found = look('HMGET', cfg, 'epoch', 'layout', 'paused')
if found[2] and found[2] ~= layout then
  return redis.error_reply('LAYOUT the queue has layout version ' .. found[2] .. ', this library knows ' .. layout)
end
local now, epoch, position = clock(), found[1], nil
if redis.call('EXISTS', stream) == 1 then
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local about = {}
    for f = 1, #group, 2 do about[group[f]] = group[f + 1] end
    if about.name == GROUP then position = about['last-delivered-id'] end
  end
end

local lost = 0
if not position then
  -- Finished entries are deleted, so a group at 0 cannot run anything again.
  redis.call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
  if epoch then lost, epoch = 1, false end
  if found[3] then
    redis.call('HSET', cfg, 'paused_position', '0-0')
    redis.call('XGROUP', 'SETID', stream, GROUP, LAST_ID)
  end
elseif position == LAST_ID and not found[3] then
  -- `cfg` was lost while the queue was paused: nobody knows the old position. Entries are delivered in
  -- order, so everything behind the highest pending one was not delivered yet.
  local highest = redis.call('XPENDING', stream, GROUP)[3]
  redis.call('XGROUP', 'SETID', stream, GROUP, highest or '0-0')
end
if not epoch then
  epoch = ARGV[1]
  redis.call('HSET', cfg, 'epoch', epoch)
end
if not found[2] then redis.call('HSET', cfg, 'layout', layout) end
if ARGV[3] ~= '' then sign(cfg, now, tonumber(ARGV[3]), tonumber(ARGV[4])) end
return {now, lost, epoch}
