<?php
// The cart; posted to, it takes `count` of the product `id`.

declare(strict_types=1);

require __DIR__ . '/common.php';

const MOST_OF_ONE = 99;

if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    $product = product(number($_POST, 'id'));
    $count = number($_POST, 'count');
    if ($count < 1 || $count > MOST_OF_ONE) {
        refuse(400, 'That is no number of things to buy.');
    }
    $cart = &cart();
    $cart[$product['id']] = min(MOST_OF_ONE, ($cart[$product['id']] ?? 0) + $count);
    go_to('cart.php');
}

$lines = cart_lines();
page_begins('Your cart');
if ($lines === []) {
    echo "<p>It is empty.</p>\n";
} else {
    cart_table($lines);
    echo "<form method=\"post\" action=\"checkout.php\"><input name=\"customer\"><button>Order</button></form>\n";
}
page_ends();
