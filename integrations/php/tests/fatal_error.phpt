--TEST--
A fatal error in the middle of deep calls
--FILE--
<?php
class Loud { function __destruct() { echo "destructed\n"; } }
function deep($n, $data) { $data[] = str_repeat('d', $n); if ($n > 0) deep($n - 1, $data); else { $loud = new Loud; undefined_function_here(...[1]); } }
register_shutdown_function(function () { echo "shutdown\n"; });
set_exception_handler(function ($e) { echo get_class($e), ': ', $e->getMessage(), "\n"; trigger_error('fatal', E_USER_ERROR); });
deep(200, []);
?>
--EXPECTF--
destructed
Error: Call to undefined function undefined_function_here()

Fatal error: fatal in %s on line %d
shutdown
