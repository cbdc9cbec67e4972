--TEST--
Strings and arrays that grow by small steps keep what is in them
--INI--
memory_limit=1G
--FILE--
<?php
// A region keeps each former place of a string.
$steps = heapfit_stats()['mode'] === 'region' ? 4000 : 600000;
$string = '';
for ($i = 0; $i < $steps; $i++) $string .= sprintf('%07d', $i);
var_dump(strlen($string) === 7 * $steps);
var_dump(md5($string) === md5(implode('', array_map(fn($i) => sprintf('%07d', $i), range(0, $steps - 1)))));
$string = str_repeat($string, intdiv(600000, $steps));
$array = [];
for ($i = 0; $i < 500000; $i++) $array[] = $i;
echo count($array), ' ', array_sum($array), "\n";
$map = [];
for ($i = 0; $i < 100000; $i++) $map["key$i"] = $i;
for ($i = 0; $i < 100000; $i += 2) unset($map["key$i"]);
echo count($map), ' ', array_sum($map), "\n";
foreach ([0, 1, 7, 8, 100, 5000, 40000, 3000000] as $length) {
    $part = substr($string, 0, $length);
    $part .= 'end';
    echo strlen($part), substr($part, -3), ' ';
}
echo "\n";
?>
--EXPECT--
bool(true)
bool(true)
500000 124999750000
50000 2500000000
3end 4end 10end 11end 103end 5003end 40003end 3000003end 
