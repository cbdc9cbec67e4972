<?php
// What every page of the shop needs: the database, the cart in the session, the page's frame.

declare(strict_types=1);

const PAGE_SIZE = 12;

function database(): PDO
{
    static $database = null;
    if ($database === null) {
        $database = new PDO('sqlite:' . $_SERVER['APPLICATION_DATABASE'], options: [
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
            PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
        ]);
        // A trial measures PHP; waiting for a disk would only add noise.
        $database->exec('PRAGMA synchronous = OFF');
    }
    return $database;
}

/** @return list<array<string, mixed>> */
function rows(string $query, array $values = []): array
{
    $statement = database()->prepare($query);
    $statement->execute($values);
    return $statement->fetchAll();
}

/** The product with this number, or the end of the request when there is none. */
function product(int $id): array
{
    return rows('SELECT * FROM products WHERE id = ?', [$id])[0] ?? refuse(404, "There is no product $id.");
}

function number(array $input, string $name, int $default = 0): int
{
    return (int) filter_var($input[$name] ?? $default, FILTER_VALIDATE_INT);
}

function escaped(string|int $text): string
{
    return htmlspecialchars((string) $text);
}

function price(int $cents): string
{
    return number_format($cents / 100, 2) . ' €';
}

/** @return array<int, int> how many of each product are in the cart */
function &cart(): array
{
    if (session_status() !== PHP_SESSION_ACTIVE) {
        session_start();
    }
    $_SESSION['cart'] ??= [];
    return $_SESSION['cart'];
}

/** @return list<array<string, mixed>> the products in the cart, each with its `count` */
function cart_lines(): array
{
    $cart = cart();
    if ($cart === []) {
        return [];
    }
    $marks = implode(', ', array_fill(0, count($cart), '?'));
    $products = rows("SELECT * FROM products WHERE id IN ($marks) ORDER BY id", array_keys($cart));
    return array_map(static fn (array $row): array => $row + ['count' => $cart[$row['id']]], $products);
}

/** @return list<array<string, mixed>> what was ordered, each with its `count` */
function order_lines(int $order): array
{
    return rows(
        'SELECT name, count, order_lines.cents FROM order_lines JOIN products ON products.id = product
         WHERE order_id = ? ORDER BY product',
        [$order],
    );
}

function total(array $lines): int
{
    return array_sum(array_map(static fn (array $line): int => $line['cents'] * $line['count'], $lines));
}

function page_begins(string $title): void
{
    $title = escaped($title);
    echo <<<HTML
        <!DOCTYPE html>
        <html lang="en">
        <head><meta charset="utf-8"><title>$title</title></head>
        <body>
        <h1>$title</h1>
        <nav><a href="index.php">Shop</a> <a href="cart.php">Cart</a></nav>
        <form action="search.php"><input name="words"><button>Search</button></form>

        HTML;
}

function page_ends(): void
{
    echo "</body>\n</html>\n";
}

function refuse(int $status, string $why): never
{
    http_response_code($status);
    page_begins('That did not work');
    echo '<p>', escaped($why), "</p>\n";
    page_ends();
    exit;
}

/** Ends the request; the browser goes on to another page, so that a reload repeats nothing. */
function go_to(string $page): never
{
    header("Location: $page", response_code: 303);
    exit;
}

function product_list(array $products): void
{
    echo "<ul>\n";
    foreach ($products as $product) {
        printf(
            "<li><a href=\"product.php?id=%d\">%s</a> %s</li>\n",
            $product['id'],
            escaped($product['name']),
            price($product['cents']),
        );
    }
    echo "</ul>\n";
}

function cart_table(array $lines): void
{
    echo "<table>\n";
    foreach ($lines as $line) {
        printf(
            "<tr><td>%s</td><td>%d</td><td>%s</td></tr>\n",
            escaped($line['name']),
            $line['count'],
            price($line['cents'] * $line['count']),
        );
    }
    printf("<tr><td>Total</td><td></td><td>%s</td></tr>\n</table>\n", price(total($lines)));
}
