--TEST--
An exception that nobody catches
--FILE--
<?php
function thrower($n) { if ($n === 0) throw new RuntimeException(str_repeat('m', 10), 3, new LogicException('inner')); thrower($n - 1); }
thrower(3);
?>
--EXPECTF--
Fatal error: Uncaught LogicException: inner in %s:%d
Stack trace:
%a
Next RuntimeException: mmmmmmmmmm in %s:%d
Stack trace:
%a
  thrown in %s on line %d
