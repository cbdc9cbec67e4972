<?php
// Posted to, orders what is in the cart for `customer`; else shows the order made last

declare(strict_types=1);

require __DIR__ . '/common.php';

/** Stores the order and takes its products from the stock, all or nothing; returns its number. */
function place_order(string $customer, array $lines): int
{
    $database = database();
    // Locked from the start: two that begin by reading would wait for each other.
    $database->exec('BEGIN IMMEDIATE');
    rows('INSERT INTO orders (customer, cents) VALUES (?, ?)', [$customer, total($lines)]);
    $order = (int) $database->lastInsertId();
    foreach ($lines as $line) {
        rows(
            'INSERT INTO order_lines (order_id, product, count, cents) VALUES (?, ?, ?, ?)',
            [$order, $line['id'], $line['count'], $line['cents']],
        );
        rows('UPDATE products SET stock = stock - ? WHERE id = ?', [$line['count'], $line['id']]);
    }
    $database->exec('COMMIT');
    return $order;
}

if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    $customer = trim((string) ($_POST['customer'] ?? ''));
    $lines = cart_lines();
    if ($customer === '' || $lines === []) {
        refuse(400, 'An order needs a customer and something in the cart.');
    }
    $_SESSION['order'] = place_order($customer, $lines);
    $_SESSION['cart'] = [];
    go_to('checkout.php');
}

cart();
$order = $_SESSION['order'] ?? refuse(404, 'You have not ordered anything.');
$lines = order_lines($order);
page_begins('Thank you');
printf("<p>Order %d</p>\n", $order);
cart_table($lines);
page_ends();
