--TEST--
After memory_limit, shutdown functions run, allocate, and see the error
--INI--
memory_limit=16M
display_errors=0
log_errors=0
--FILE--
<?php
set_error_handler(function ($level, $message) { echo "handled: $message\n"; return true; });
register_shutdown_function(function () {
    $error = error_get_last();
    echo $error['type'] === E_ERROR ? 'E_ERROR' : 'other', ': ', $error['message'], "\n";
    echo strlen(str_repeat('y', 100)), "\n";
});
echo $undefined;
$strings = [];
while (true) $strings[] = str_repeat('x', 1000);
?>
--EXPECTF--
handled: Undefined variable $undefined
E_ERROR: Allowed memory size of 16777216 bytes exhausted%s(tried to allocate %d bytes)
100
