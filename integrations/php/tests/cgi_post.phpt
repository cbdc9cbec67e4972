--TEST--
A request by php-cgi with a body that is not parsed
--INI--
post_max_size=32M
--POST_RAW--
Content-Type: text/plain
pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp
--FILE--
<?php
$body = file_get_contents('php://input');
echo PHP_SAPI, ' ', strlen(trim($body)), "\n";
?>
--EXPECT--
cgi-fcgi 300
