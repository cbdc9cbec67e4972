--TEST--
Generators and fibers, finished and left behind
--FILE--
<?php
function numbers($to) { for ($i = 0; $i < $to; $i++) yield str_repeat('n', $i % 50) => $i; }
$sum = 0;
foreach (numbers(10000) as $key => $number) $sum += $number + strlen($key);
echo $sum, "\n";
$left = numbers(100);
$left->next();
$fiber = new Fiber(function (string $first): string {
    $second = Fiber::suspend(strrev($first));
    try {
        Fiber::suspend($second . $second);
    } finally {
        echo "fiber left\n";
    }
});
echo $fiber->start('abc'), "\n", $fiber->resume('xy'), "\n";
for ($i = 0; $i < 50; $i++) { $many[$i] = new Fiber(fn() => Fiber::suspend(str_repeat('z', 1000))); $many[$i]->start(); }
echo "end\n";
?>
--EXPECT--
50240000
cba
xyxy
end
fiber left
