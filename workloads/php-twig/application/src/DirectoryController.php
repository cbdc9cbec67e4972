<?php

declare(strict_types=1);

namespace Telephone;

use InvalidArgumentException;
use Symfony\Component\HttpFoundation\RedirectResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Exception\BadRequestHttpException;
use Symfony\Component\HttpKernel\Exception\NotFoundHttpException;
use Symfony\Component\Routing\Generator\UrlGeneratorInterface;
use Twig\Environment;

/** The three things that can be done to the directory: see all of it, see one entry, change it. */
final class DirectoryController
{
    public function __construct(
        private Directory $directory,
        private Environment $twig,
        private UrlGeneratorInterface $urls,
    ) {
    }

    public function all(): Response
    {
        return $this->page('all.html.twig', ['entries' => $this->directory->all()]);
    }

    public function edit(int $id): Response
    {
        return $this->page('edit.html.twig', ['entry' => $this->entry($id)]);
    }

    public function update(int $id, Request $request): Response
    {
        $input = $request->request;
        try {
            $entry = $this->entry($id)->withInput($input->get('number', ''), $input->get('note', ''));
        } catch (InvalidArgumentException $error) {
            throw new BadRequestHttpException($error->getMessage(), $error);
        }
        $this->directory->update($entry);
        return new RedirectResponse(
            $this->urls->generate('edit', ['id' => $id]),
            Response::HTTP_SEE_OTHER
        );
    }

    private function entry(int $id): Entry
    {
        return $this->directory->find($id) ?? throw new NotFoundHttpException("no entry $id");
    }

    /** @param array<string, mixed> $context */
    private function page(string $template, array $context): Response
    {
        return new Response($this->twig->render($template, $context));
    }
}
