--TEST--
memory_get_peak_usage() remembers, memory_reset_peak_usage() forgets
--FILE--
<?php
$string = str_repeat('x', 10000000);
unset($string);
$peak = memory_get_peak_usage();
var_dump($peak >= 10000000, memory_get_peak_usage(true) >= $peak);
memory_reset_peak_usage();
$frees = heapfit_stats()['mode'] !== 'region';
var_dump($frees ? memory_get_peak_usage() < 5000000 : memory_get_peak_usage() >= 10000000);
var_dump($frees ? memory_get_peak_usage(true) < 10000000 : memory_get_peak_usage(true) >= 10000000);
var_dump(gc_mem_caches() >= 0);
?>
--EXPECT--
bool(true)
bool(true)
bool(true)
bool(true)
bool(true)
