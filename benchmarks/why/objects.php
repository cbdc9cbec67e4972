<?php
// Arrays in the chunks of the Zend memory manager.
ini_set('memory_limit', '1G');
$kept = [];
for ($i = 0; $i < 900000; $i++) $kept[] = ['number' => $i, 'name' => "name $i"];
echo "ready\n";
stream_get_contents(STDIN);
echo count($kept);
