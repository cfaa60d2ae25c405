-- Part `due`: the wake-up for a new earliest due time. Needs `look`.
-- earliest(base): the first due time of `scheduled` and `retry`, or nil; checks both keys.
-- wake_due(base, before, due): tells the promoters, only if `due` is earlier than what they wait for.
local function earliest(base)
  local first = nil
  for _, kind in ipairs({'scheduled', 'retry'}) do
    local found = look('ZRANGE', base .. kind, 0, 0, 'WITHSCORES')
    local score = tonumber(found[2])
    if score and (not first or score < first) then first = score end
  end
  return first
end

local function wake_due(base, before, due)
  if not before or due < before then
    redis.call('PUBLISH', base .. 'wake', 'due ' .. string.format('%.0f', due))
  end
end
