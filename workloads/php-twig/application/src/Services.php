<?php

declare(strict_types=1);

namespace Telephone;

use PDO;
use Symfony\Bridge\Twig\Extension\RoutingExtension;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\Reference;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\HttpKernel\Controller\ArgumentResolver;
use Symfony\Component\HttpKernel\Controller\ContainerControllerResolver;
use Symfony\Component\HttpKernel\EventListener\ResponseListener;
use Symfony\Component\HttpKernel\EventListener\RouterListener;
use Symfony\Component\HttpKernel\HttpKernel;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Routing\Generator\CompiledUrlGenerator;
use Symfony\Component\Routing\Matcher\CompiledUrlMatcher;
use Symfony\Component\Routing\RequestContext;
use Symfony\Component\Routing\Route;
use Symfony\Component\Routing\RouteCollection;
use Twig\Environment;
use Twig\Loader\FilesystemLoader;

/** The routes of the application, and how its objects are made and tied together. */
final class Services
{
    public static function routes(): RouteCollection
    {
        $routes = new RouteCollection();
        $add = static function (string $name, string $path, string $method) use ($routes): void {
            $controller = DirectoryController::class . "::$name";
            $route = new Route($path, ['_controller' => $controller], ['id' => '\d+']);
            $routes->add($name, $route->setMethods([$method]));
        };
        $add('all', '/', 'GET');
        $add('edit', '/entries/{id}', 'GET');
        $add('update', '/entries/{id}', 'POST');
        return $routes;
    }

    public static function define(): ContainerBuilder
    {
        $builder = new ContainerBuilder();
        self::defineRouting($builder);
        self::defineTemplates($builder);
        self::defineApplication($builder);
        self::defineKernel($builder);
        return $builder;
    }

    private static function defineRouting(ContainerBuilder $builder): void
    {
        $builder->register(RequestContext::class, RequestContext::class);
        foreach (['matcher' => CompiledUrlMatcher::class, 'generator' => CompiledUrlGenerator::class] as $file => $class) {
            $builder->register($class . '.compiled', 'array')
                ->setFactory([CompiledFile::class, 'read'])
                ->setArguments(["%env(APPLICATION_COMPILED)%/$file.php"]);
            $builder->register($class, $class)
                ->setArguments([new Reference($class . '.compiled'), new Reference(RequestContext::class)]);
        }
    }

    private static function defineTemplates(ContainerBuilder $builder): void
    {
        $builder->register(FilesystemLoader::class, FilesystemLoader::class)
            ->setArguments([dirname(__DIR__) . '/templates']);
        $builder->register(RoutingExtension::class, RoutingExtension::class)
            ->setArguments([new Reference(CompiledUrlGenerator::class)]);
        $options = [
            'cache' => '%env(APPLICATION_COMPILED)%/templates',
            'auto_reload' => false,
            'strict_variables' => true,
        ];
        $builder->register(Environment::class, Environment::class)
            ->setArguments([new Reference(FilesystemLoader::class), $options])
            ->addMethodCall('addExtension', [new Reference(RoutingExtension::class)])
            ->setPublic(true);
    }

    private static function defineApplication(ContainerBuilder $builder): void
    {
        $builder->register(PDO::class, PDO::class)->setArguments([
            'sqlite:%env(APPLICATION_DATABASE)%',
            null,
            null,
            [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC],
        ]);
        $builder->register(Directory::class, Directory::class)
            ->setArguments([new Reference(PDO::class)]);
        $builder->register(DirectoryController::class, DirectoryController::class)->setArguments([
            new Reference(Directory::class),
            new Reference(Environment::class),
            new Reference(CompiledUrlGenerator::class),
        ])->setPublic(true);
        $builder->register(ErrorPages::class, ErrorPages::class)
            ->setArguments([new Reference(Environment::class)]);
    }

    private static function defineKernel(ContainerBuilder $builder): void
    {
        $builder->register(RequestStack::class, RequestStack::class);
        $builder->register(RouterListener::class, RouterListener::class)->setArguments([
            new Reference(CompiledUrlMatcher::class),
            new Reference(RequestStack::class),
            new Reference(RequestContext::class),
        ]);
        $builder->register(ResponseListener::class, ResponseListener::class)
            ->setArguments(['UTF-8']);
        $dispatcher = $builder->register(EventDispatcher::class, EventDispatcher::class);
        foreach ([RouterListener::class, ResponseListener::class, ErrorPages::class] as $subscriber) {
            $dispatcher->addMethodCall('addSubscriber', [new Reference($subscriber)]);
        }
        $builder->register(ContainerControllerResolver::class, ContainerControllerResolver::class)
            ->setArguments([new Reference('service_container')]);
        $builder->register(ArgumentResolver::class, ArgumentResolver::class);
        $builder->register(HttpKernelInterface::class, HttpKernel::class)->setArguments([
            new Reference(EventDispatcher::class),
            new Reference(ContainerControllerResolver::class),
            new Reference(RequestStack::class),
            new Reference(ArgumentResolver::class),
        ])->setPublic(true);
    }
}
