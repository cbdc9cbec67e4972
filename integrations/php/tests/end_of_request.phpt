--TEST--
What happens when a request ends happens as with Zend's own manager
--FILE--
<?php
class Loud {
    public static $kept = [];
    public $other;
    function __construct(public string $name) {}
    function __destruct() { echo "destructed {$this->name}\n"; }
}
class Stream {
    public $context;
    function stream_open($path, $mode, $options, &$opened) { return true; }
    function stream_write($data) { return strlen($data); }
    function stream_close() { echo 'closed ', (new Late)->word(), ' ', strlen(constant('WORD')), "\n"; }
}
class Late { function word() { return helper('late'); } }
function helper($word) { static $calls = 0; return $word . ++$calls; }
define('WORD', str_repeat('w', 1000));
stream_wrapper_register('loud', Stream::class);
$handle = fopen('loud://x', 'w');
$a = new Loud('a');
Loud::$kept[] = new Loud('static');
$cycle = new Loud('cycle');
$cycle->other = $cycle;
$closure = function () use ($a) { return $a; };
$map = new WeakMap;
$map[$a] = new ArrayObject([1, 2, 3]);
$weak = WeakReference::create($a);
$storage = new SplObjectStorage;
$storage[$cycle] = str_repeat('s', 500);
register_shutdown_function(function () { echo "shutdown function\n"; });
ob_start(fn($buffer) => strtoupper($buffer));
echo "body\n";
unset($handle_unknown);
?>
--EXPECT--
BODY
SHUTDOWN FUNCTION
DESTRUCTED A
DESTRUCTED STATIC
DESTRUCTED CYCLE
closed late1 1000
