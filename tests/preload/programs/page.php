<?php
// What a PHP page does: arrays, strings, regular expressions, JSON, XML and a template, repeatedly.
// The run sets USE_ZEND_ALLOC=0, so PHP's memory comes from malloc.

function short(string $text): string { return substr(hash('sha256', $text), 0, 16); }

mt_srand(20240229);
$articles = [];
for ($id = 0; $id < 6000; $id++) {
    $words = [];
    for ($count = mt_rand(5, 60); $count > 0; $count--) $words[] = str_repeat(chr(mt_rand(97, 122)), mt_rand(1, 9));
    $articles[] = ['id' => $id, 'title' => ucfirst($words[0]), 'text' => implode(' ', $words)];
}
usort($articles, fn($a, $b) => [$a['title'], $a['id']] <=> [$b['title'], $b['id']]);
echo 'articles ', short(json_encode($articles)), "\n";

$index = [];
foreach ($articles as $article) {
    foreach (preg_split('/\s+/', $article['text']) as $word) $index[$word][$article['id']] = true;
}
ksort($index);
echo 'words ', count($index), ' ', short(serialize($index)), "\n";

$pages = '';
foreach (array_chunk($articles, 50) as $number => $chunk) {
    ob_start();
    foreach ($chunk as $article) {
        echo '<h2>', htmlspecialchars($article['title']), '</h2><p>';
        echo preg_replace_callback('/\b(\w)\1{3,}\b/', fn($found) => "<b>{$found[1]}</b>", $article['text']);
        echo '</p>';
    }
    $pages .= sprintf('<section id="%d">%s</section>', $number, ob_get_clean());
}
echo 'pages ', strlen($pages), ' ', short($pages), "\n";

class Node { public ?Node $next = null; public ?Node $back = null; public function __construct(public string $text) {} }
$total = 0;
for ($round = 0; $round < 300; $round++) {
    $first = $last = new Node('0');
    for ($length = 1; $length < 200; $length++) {
        $node = new Node(str_repeat('n', $length));
        $last->next = $node;
        $node->back = $last;
        $last = $node;
    }
    $first->back = $last;
    $total += strlen($last->text);
}
echo "cycles $total, ", gc_collect_cycles() >= 0 ? 'collected' : '', "\n";
echo 'copy ', short(serialize(unserialize(serialize($articles)))), "\n";
