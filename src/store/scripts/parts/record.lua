-- Part `record`: the value of a field of `tasks`, a MessagePack map. Needs `look`.
-- Keys: v = 1 · s state word (pending scheduled retry archived completed parked) · e envelope ·
--   i entry id while in the stream · d due ms · c crashes · x last error · k reason word ·
--   f failed last or ended at ms · n task name · l client to tell · p parked since ms.
-- record_of(tasks, id): the map, or nil. A value that is no record of version 1 counts as absent: it
--   must not keep a task from ending, and whoever ends the task overwrites or drops it.
-- record_set(tasks, id, record): writes it. Absent keys are simply nil in the table.
local function record_of(tasks, id)
  local value = look('HGET', tasks, id)
  if not value then return nil end
  local read, record = pcall(cmsgpack.unpack, value)
  if not read or type(record) ~= 'table' or record.v ~= 1 then return nil end
  return record
end

local function record_set(tasks, id, record)
  record.v = 1
  redis.call('HSET', tasks, id, cmsgpack.pack(record))
end
