<?php
// One product: product.php?id=ID

declare(strict_types=1);

require __DIR__ . '/common.php';

$product = product(number($_GET, 'id'));
page_begins($product['name']);
printf("<p>%s</p>\n", escaped($product['description']));
printf("<p>%s, %d in stock</p>\n", price($product['cents']), $product['stock']);
echo <<<HTML
    <form method="post" action="cart.php">
    <input type="hidden" name="id" value="$product[id]">
    <input name="count" value="1">
    <button>Into the cart</button>
    </form>

    HTML;
page_ends();
