-- Part `fence`: the group, and who holds a delivery. Needs `look`. Goes before all other parts but `look`.
-- fenced(stream, me, entry, count): whether this very delivery is still mine. XACK, XCLAIM and XDEL know
-- no owner: a stale owner's XACK succeeds and its XCLAIM steals the entry back.
local GROUP, RELEASED = 'servers', '~released'

local function fenced(stream, me, entry, count)
  local found = look('XPENDING', stream, GROUP, entry, entry, 1, me)
  return found[1] ~= nil and found[1][4] == tonumber(count)
end
