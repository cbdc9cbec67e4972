<?php
// What a customer has ordered so far: orders.php?customer=NAME

declare(strict_types=1);

require __DIR__ . '/common.php';

$customer = (string) ($_GET['customer'] ?? '');
$orders = rows('SELECT id, cents FROM orders WHERE customer = ? ORDER BY id', [$customer]);
if ($orders === []) {
    refuse(404, 'Nothing has been ordered under this name.');
}
page_begins("Orders of $customer");
foreach ($orders as $order) {
    printf("<h2>Order %d: %s</h2>\n", $order['id'], price($order['cents']));
    cart_table(order_lines($order['id']));
}
page_ends();
