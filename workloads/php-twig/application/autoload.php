<?php
// Where the classes are: Debian's Symfony components and Twig, and the application's own in src/.

declare(strict_types=1);

require_once 'Symfony/Component/DependencyInjection/autoload.php';
require_once 'Symfony/Component/EventDispatcher/autoload.php';
require_once 'Symfony/Component/HttpFoundation/autoload.php';
require_once 'Symfony/Component/HttpKernel/autoload.php';
require_once 'Symfony/Component/Routing/autoload.php';
require_once 'Symfony/Bridge/Twig/autoload.php';
require_once 'Twig/autoload.php';

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Telephone\\')) {
        require __DIR__ . '/src/' . substr($class, strlen('Telephone\\')) . '.php';
    }
});
