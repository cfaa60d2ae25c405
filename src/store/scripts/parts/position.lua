-- Part `position`: where the group stands.
-- position_of(stream): last id delivered to the group `servers`, or nil if there is no such group.
-- later(a, b): whether entry id a is behind b. They do not compare as text, nor as numbers: 64 bits are
--   more than a number of Lua holds.
local function position_of(stream)
  if redis.call('EXISTS', stream) == 0 then return nil end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local fields = {}
    for i = 1, #group, 2 do fields[group[i]] = group[i + 1] end
    if fields.name == GROUP then return fields['last-delivered-id'] end
  end
end

local function later(a, b)
  local am, as = a:match('^(%d+)-(%d+)$')
  local bm, bs = b:match('^(%d+)-(%d+)$')
  if am ~= bm then return #am > #bm or (#am == #bm and am > bm) end
  return #as > #bs or (#as == #bs and as > bs)
end
