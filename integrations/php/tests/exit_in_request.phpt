--TEST--
exit in the middle of a function, a buffer and a generator
--FILE--
<?php
function generate() { try { yield str_repeat('g', 1000); yield 2; } finally { echo "finally\n"; } }
function work() { $data = range(1, 1000); ob_start(); echo "buffered\n"; foreach (generate() as $x) { if ($x === 2) exit("bye\n"); } }
register_shutdown_function(function () { echo "shutdown\n"; });
work();
?>
--EXPECT--
buffered
bye
finally
shutdown
