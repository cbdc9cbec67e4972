--TEST--
heapfit_stats() tells the mode of php.ini and figures that make sense
--FILE--
<?php
$mode = ini_get('heapfit.mode') ?: 'off';
$stats = heapfit_stats();
var_dump($stats['mode'] === $mode);
if ($mode === 'off') {
    var_dump($stats['footprint'] === 0);
} else {
    var_dump($stats['live'] > 10000 && $stats['live'] <= $stats['used'] && $stats['used'] <= $stats['peak']
        && $stats['peak'] <= $stats['footprint_peak'] && $stats['footprint'] <= $stats['footprint_peak']);
}
var_dump(isset($stats['mallocs']));
?>
--EXPECT--
bool(true)
bool(true)
bool(false)
