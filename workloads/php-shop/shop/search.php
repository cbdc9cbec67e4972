<?php
// Products whose name has all of some words: search.php?words=TEXT

declare(strict_types=1);

require __DIR__ . '/common.php';

$text = (string) ($_GET['words'] ?? '');
$words = preg_split('/\s+/', $text, flags: PREG_SPLIT_NO_EMPTY);
if ($words === []) {
    refuse(400, 'What are you looking for?');
}
$conditions = implode(' AND ', array_fill(0, count($words), "name LIKE ? ESCAPE '!'"));
$patterns = array_map(
    static fn (string $word): string => '%' . preg_replace('/[!%_]/', '!$0', $word) . '%',
    $words,
);
$found = rows("SELECT id, name, cents FROM products WHERE $conditions ORDER BY name, id", $patterns);

page_begins("Found: $text");
printf("<p>%d products</p>\n", count($found));
product_list(array_slice($found, 0, PAGE_SIZE));
page_ends();
