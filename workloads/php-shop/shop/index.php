<?php
// The shop's entrance, or one page of a category: index.php?category=ID&page=NUMBER

declare(strict_types=1);

require __DIR__ . '/common.php';

$categories = array_column(rows('SELECT * FROM categories ORDER BY id'), 'name', 'id');
$chosen = number($_GET, 'category');

if ($chosen === 0) {
    page_begins('The shop');
    echo "<ul>\n";
    foreach ($categories as $id => $name) {
        printf("<li><a href=\"index.php?category=%d\">%s</a></li>\n", $id, escaped($name));
    }
    echo "</ul>\n";
} else {
    page_begins($categories[$chosen] ?? refuse(404, "There is no category $chosen."));
    $page = max(1, number($_GET, 'page', 1));
    $products = rows(
        'SELECT id, name, cents FROM products WHERE category = ? ORDER BY name, id LIMIT ? OFFSET ?',
        [$chosen, PAGE_SIZE, ($page - 1) * PAGE_SIZE],
    );
    product_list($products);
    if (count($products) === PAGE_SIZE) {
        printf("<p><a href=\"index.php?category=%d&amp;page=%d\">More</a></p>\n", $chosen, $page + 1);
    }
}
page_ends();
