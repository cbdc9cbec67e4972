--TEST--
phpinfo() has a section
--FILE--
<?php
ob_start();
phpinfo(INFO_MODULES);
$text = strip_tags(ob_get_clean());
echo preg_match('/Request memory\s*(=>)?\s*(\S+)/', $text, $found) ? 'found' : 'missing', "\n";
var_dump($found[2] === (heapfit_stats()['mode'] === 'off' ? 'Zend\'s' : heapfit_stats()['mode']));
echo preg_match('/heapfit\.huge_pages/', $text), "\n";
?>
--EXPECT--
found
bool(true)
1
