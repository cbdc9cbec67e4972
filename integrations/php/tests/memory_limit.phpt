--TEST--
memory_limit ends a program with PHP's own error
--INI--
memory_limit=16M
--FILE--
<?php
$strings = [];
while (true) $strings[] = str_repeat('x', 1000);
?>
--EXPECTF--
Fatal error: Allowed memory size of 16777216 bytes exhausted%s(tried to allocate %d bytes) in %s on line %d
