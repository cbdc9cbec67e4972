<?php

declare(strict_types=1);

namespace Telephone;

/** What compile.php has left in a PHP file that returns an array. */
final class CompiledFile
{
    /** @return array<mixed> */
    public static function read(string $path): array
    {
        return require $path;
    }
}
