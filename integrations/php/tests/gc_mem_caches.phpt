--TEST--
gc_mem_caches() gives back what a long-running program needs no more
--FILE--
<?php
$mode = heapfit_stats()['mode'];
$frees = $mode !== 'region'; // it gets nothing back before the request ends
for ($i = 0; $i < 50; $i++) $strings[] = str_repeat('x', 1 << 20);
unset($strings);
$given_back = gc_mem_caches();
var_dump($mode === 'defrag-dodging' ? $given_back > 10 << 20 : $given_back >= 0);
var_dump((memory_get_usage(true) < 10 << 20) === $frees);
?>
--EXPECT--
bool(true)
bool(true)
