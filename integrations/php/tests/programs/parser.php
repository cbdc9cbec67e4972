<?php
// PhpParser and PHPUnit of Debian: parse PHPUnit's sources, print them again, and compare.
require '/usr/share/php/PhpParser/autoload.php';

$parser = (new PhpParser\ParserFactory)->create(PhpParser\ParserFactory::PREFER_PHP7);
$printer = new PhpParser\PrettyPrinter\Standard;
foreach (glob('/usr/share/php/PHPUnit/Framework/*.php') as $i => $file) {
    if ($i % 3 !== 0) continue; // enough, and bounded in time under checks
    $printed = $printer->prettyPrintFile($parser->parse(file_get_contents($file)));
    $again = $printer->prettyPrintFile($parser->parse($printed));
    echo basename($file), ' ', md5($printed), ' ', $printed === $again ? 'same' : 'differs', "\n";
}
