--TEST--
A request by php-cgi with variables and a session
--GET--
a[]=1&a[]=2&b=text
--POST--
c[x]=3&d=4
--COOKIE--
e=5
--FILE--
<?php
echo PHP_SAPI, ' ', json_encode([$_GET, $_POST, $_COOKIE]), "\n";
$stats = heapfit_stats();
var_dump($stats['mode'] === (ini_get('heapfit.mode') ?: 'off'));
?>
--EXPECT--
cgi-fcgi [{"a":["1","2"],"b":"text"},{"c":{"x":"3"},"d":"4"},{"e":"5"}]
bool(true)
