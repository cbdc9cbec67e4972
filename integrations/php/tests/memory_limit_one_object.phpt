--TEST--
memory_limit refuses a single object that is larger
--INI--
memory_limit=16M
--FILE--
<?php
echo strlen(str_repeat('x', 1 << 20)), "\n";
$string = str_repeat('x', 20 << 20);
echo "not reached\n";
?>
--EXPECTF--
1048576

Fatal error: Allowed memory size of 16777216 bytes exhausted%s(tried to allocate %d bytes) in %s on line %d
