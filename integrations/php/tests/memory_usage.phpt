--TEST--
memory_get_usage() follows what a program allocates and frees
--FILE--
<?php
// A region gets nothing back before the request ends.
$frees = heapfit_stats()['mode'] !== 'region';
$before = memory_get_usage();
$array = [];
for ($i = 0; $i < 10000; $i++) $array[] = str_repeat('x', 100);
$during = memory_get_usage();
var_dump($during - $before > 1000000 && $during - $before < 3000000);
unset($array);
$after = memory_get_usage();
var_dump($frees ? $after - $before < 2000 : $after >= $during);
$string = str_repeat('x', 5000000);
var_dump(memory_get_usage() - $after >= 5000000);
var_dump(memory_get_usage(true) >= memory_get_usage());
var_dump(memory_get_usage(real_usage: false) > 0);
try {
    memory_get_usage([]);
} catch (TypeError $error) {
    echo $error->getMessage(), "\n";
}
?>
--EXPECT--
bool(true)
bool(true)
bool(true)
bool(true)
bool(true)
memory_get_usage(): Argument #1 ($real_usage) must be of type bool, array given
