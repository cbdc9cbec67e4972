--TEST--
Code that needs aligned memory gets it
--FILE--
<?php
$odd = str_repeat('o', 9); // so that what follows in a region is not aligned by chance
foreach (hash_algos() as $algorithm) {
    $pieces = hash_init($algorithm);
    $odd .= 'abcde';
    foreach (str_split(str_repeat('0123456789abcdef', 300), 7) as $piece) hash_update($pieces, $piece);
    $copy = hash_copy($pieces);
    if (hash_final($pieces) !== hash($algorithm, str_repeat('0123456789abcdef', 300))) echo "$algorithm differs\n";
    hash_final($copy);
}
echo "all equal\n";
?>
--EXPECT--
all equal
