-- Part `record`: the value of a field of `tasks`, a MessagePack map. Needs `look`.
-- Keys: v = 1 · s state word (pending scheduled retry archived completed parked) · e envelope ·
--   i entry id while in the stream · d due ms · c crashes · x last error · k reason word ·
--   f failed last or ended at ms · n task name · l client to tell · p parked since ms · o notice of its
--   ending, while it is archived.
-- record_of(tasks, id): the map, or nil. A value that is no record of version 1 ends the script.
-- record_or_none(tasks, id): the map, or nil; also nil for a value that is no record. For scripts that end
--   a delivery: what cannot be read must not keep a task from ending, and is overwritten or dropped by it.
-- record_set(tasks, id, record): writes it. Absent keys are simply nil in the table.
local function unpack_record(value)
  local read, record = pcall(cmsgpack.unpack, value)
  if read and type(record) == 'table' and record.v == 1 then return record end
end

local function record_or_none(tasks, id)
  local value = look('HGET', tasks, id)
  return value and unpack_record(value) or nil
end

local function record_of(tasks, id)
  local value = look('HGET', tasks, id)
  if not value then return nil end
  local record = unpack_record(value)
  if not record then
    error({err = 'BADRECORD task ' .. id .. ' in ' .. tasks .. ' is no record of version 1'})
  end
  return record
end

local function record_set(tasks, id, record)
  record.v = 1
  redis.call('HSET', tasks, id, cmsgpack.pack(record))
end
