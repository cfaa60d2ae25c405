-- Part `claim`: hands entries to an owner without raising their delivery counts. Needs `fence`.
-- claim(stream, owner, ids): XCLAIM JUSTID of at most 100 ids that the caller saw pending in this script.
--   Returns the set of ids that were claimed. Redis drops an entry that was deleted by hand from the
--   pending list instead: such an id is missing in the answer, and its fields have to be forgotten.
local function claim(stream, owner, ids)
  local claimed = {}
  if #ids == 0 then return claimed end
  local command = {'XCLAIM', stream, GROUP, owner, 0}
  for _, id in ipairs(ids) do command[#command + 1] = id end
  command[#command + 1] = 'JUSTID'
  for _, id in ipairs(redis.call(unpack(command))) do claimed[id] = true end
  return claimed
end
