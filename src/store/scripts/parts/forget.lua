-- Part `forget`: what goes together with an entry or a record. Needs `look`.
-- forgettable(base): checks `cancel` and `crashes` before the first write. Both are usually absent: one EXISTS.
-- forget_entry(forgettable, entry): drops the fields of an entry that the same script removed.
-- forget_task(tasks, id): drops a record. The place for what hangs on one: a unique lock.
local function forgettable(base)
  local found = {}
  if redis.call('EXISTS', base .. 'cancel', base .. 'crashes') == 0 then return found end
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
