--TEST--
heapfit.count counts calls and bytes
--INI--
heapfit.count=1
opcache.enable=0
opcache.enable_cli=0
--FILE--
<?php
if (heapfit_stats()['mode'] === 'off') {
    var_dump(array_key_exists('mallocs', heapfit_stats()), true, true, true); // Zend's own are not counted
    exit;
}
$before = heapfit_stats();
for ($i = 0; $i < 1000; $i++) { $string = str_repeat(chr($i % 256), 976); }
$after = heapfit_stats();
$mallocs = $after['mallocs'] - $before['mallocs'];
var_dump($mallocs === 0);
var_dump($mallocs >= 1000 && $mallocs < 1100);
var_dump(abs($after['frees'] - $before['frees'] - $mallocs) < 20);
var_dump(abs(($after['malloc_bytes'] - $before['malloc_bytes']) / 1000 - 1008) < 40);
?>
--EXPECT--
bool(false)
bool(true)
bool(true)
bool(true)
