-- Answers its arguments; for the tests of the connection.
--
-- KEYS   any
-- ARGV   anything
-- Reply  see the code
-- Cost   none to speak of
-- Atomic it writes nothing
return { { KEYS, ARGV } }
