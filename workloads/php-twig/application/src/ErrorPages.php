<?php

declare(strict_types=1);

namespace Telephone;

use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Event\ExceptionEvent;
use Symfony\Component\HttpKernel\Exception\HttpExceptionInterface;
use Symfony\Component\HttpKernel\KernelEvents;
use Twig\Environment;

/** Turns what goes wrong by the caller's doing into a page; anything else stays an error. */
final class ErrorPages implements EventSubscriberInterface
{
    public function __construct(private Environment $twig)
    {
    }

    public static function getSubscribedEvents(): array
    {
        return [KernelEvents::EXCEPTION => 'onException'];
    }

    public function onException(ExceptionEvent $event): void
    {
        $error = $event->getThrowable();
        if ($error instanceof HttpExceptionInterface) {
            $page = $this->twig->render('error.html.twig', ['message' => $error->getMessage()]);
            $event->setResponse(new Response($page, $error->getStatusCode()));
        }
    }
}
