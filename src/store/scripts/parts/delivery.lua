-- Part `delivery`: how a delivery is answered. Needs `fence`, `forget`.
-- delivery(id, count, fields, crashes, suspect): {id, count, field name, envelope, crashes or -1, suspect 0|1}.
-- adopt(stream, forgettable, crashes, row): the delivery of a row of XPENDING that is mine already, and the
--   size of its envelope; nil for an entry that was deleted by hand, which leaves the pending list for good.
-- REPLY_BYTES bounds what one script answers (or one entry alone).
local REPLY_BYTES = 256 * 1024

local function delivery(id, count, fields, crashes, suspect)
  return {id, count, fields[1], fields[2] or '', tonumber(crashes) or -1, suspect and 1 or 0}
end

local function adopt(stream, forgettable_, crashes, row)
  local entry = redis.call('XRANGE', stream, row[1], row[1])[1]
  if not entry then
    redis.call('XACK', stream, GROUP, row[1])
    forget_entry(forgettable_, row[1])
    return nil
  end
  local seen = redis.call('HGET', crashes, row[1])
  local suspect = (tonumber(seen) or 0) > 0
  return delivery(row[1], row[4], entry[2], seen, suspect), #(entry[2][2] or '')
end
