--TEST--
ini_set('memory_limit') counts at once, upwards and downwards
--INI--
memory_limit=8M
--FILE--
<?php
var_dump(ini_set('memory_limit', '64M'));
$strings = [];
for ($i = 0; $i < 200; $i++) $strings[] = str_repeat('x', 100000);
echo count($strings), "\n";
var_dump(ini_set('memory_limit', '4M'));
var_dump(ini_get('memory_limit'));
var_dump(ini_set('memory_limit', '32M'));
while (true) $strings[] = str_repeat('x', 100000);
?>
--EXPECTF--
string(2) "8M"
200

Warning: Failed to set memory limit to 4194304 bytes (Current memory usage is %d bytes) in %s on line %d
bool(false)
string(3) "64M"
string(3) "64M"

Fatal error: Allowed memory size of 33554432 bytes exhausted%s(tried to allocate %d bytes) in %s on line %d
