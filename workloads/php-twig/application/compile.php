<?php
// Compiles what a framework compiles when it is deployed: the container, the routes, the templates.
//
// Usage: php compile.php FOLDER

declare(strict_types=1);

use Symfony\Component\DependencyInjection\Dumper\PhpDumper;
use Symfony\Component\Routing\Generator\Dumper\CompiledUrlGeneratorDumper;
use Symfony\Component\Routing\Matcher\Dumper\CompiledUrlMatcherDumper;
use Telephone\Services;
use Twig\Environment;

require __DIR__ . '/autoload.php';

if ($argc !== 2) {
    fwrite(STDERR, "usage: php compile.php FOLDER\n");
    exit(2);
}
$folder = $argv[1];

$routes = Services::routes();
foreach ([
    'matcher' => new CompiledUrlMatcherDumper($routes),
    'generator' => new CompiledUrlGeneratorDumper($routes),
] as $name => $dumper) {
    file_put_contents("$folder/$name.php", $dumper->dump());
}

$builder = Services::define();
$builder->compile();
file_put_contents("$folder/container.php", (new PhpDumper($builder))->dump(['class' => 'TelephoneContainer']));

// The container's paths are known when it runs, not when it is made: hence the environment.
$_SERVER['APPLICATION_COMPILED'] = $folder;
require "$folder/container.php";
$twig = (new TelephoneContainer())->get(Environment::class);
foreach (glob(__DIR__ . '/templates/*.twig') as $template) {
    $twig->load(basename($template));
}
