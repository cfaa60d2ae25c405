-- Part `forget`: what goes together with an entry or a record. Needs `look`.
-- forgettable(base): checks `cancel` and `crashes` (both usually absent) before the first write.
-- forget_entry(forgettable, entry): drops the fields of an entry that the same script removed.
-- forget_task(tasks, id): drops a record. The place for what hangs on one: a unique lock.
local function forgettable(base)
  local found = {}
  for _, kind in ipairs({'cancel', 'crashes'}) do
    if look('HLEN', base .. kind) > 0 then found[#found + 1] = base .. kind end
  end
  return found
end

local function forget_entry(forgettable_, entry)
  for _, key in ipairs(forgettable_) do redis.call('HDEL', key, entry) end
end

local function forget_task(tasks, id)
  redis.call('HDEL', tasks, id)
end
