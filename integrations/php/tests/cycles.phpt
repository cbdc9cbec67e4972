--TEST--
Cycles are collected
--FILE--
<?php
class Node { public $next; public $data; }
$collected = 0;
for ($round = 0; $round < 20; $round++) {
    for ($i = 0; $i < 2000; $i++) { $a = new Node; $b = new Node; $a->next = $b; $b->next = $a; $a->data = range(0, 5); }
    $collected += gc_collect_cycles();
}
var_dump($collected > 30000);
?>
--EXPECT--
bool(true)
