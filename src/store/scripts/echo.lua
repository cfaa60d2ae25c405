-- Answers with its keys and arguments: the test of how scripts are sent.
return { { KEYS, ARGV } }
