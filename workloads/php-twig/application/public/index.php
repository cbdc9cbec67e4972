<?php
// Every request to the telephone directory arrives here.

declare(strict_types=1);

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;

require dirname(__DIR__) . '/autoload.php';
require $_SERVER['APPLICATION_COMPILED'] . '/container.php';

$kernel = (new TelephoneContainer())->get(HttpKernelInterface::class);
$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
