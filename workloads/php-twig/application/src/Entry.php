<?php

declare(strict_types=1);

namespace Telephone;

use InvalidArgumentException;

/** One entry of the directory; `revision` counts how often it has been updated. */
final class Entry
{
    private const NUMBER = '/^\+?[0-9][0-9 ]{4,24}$/';

    public function __construct(
        public readonly int $id,
        public readonly string $name,
        public readonly string $street,
        public readonly string $town,
        public readonly string $number,
        public readonly string $note,
        public readonly int $revision,
    ) {
    }

    /** @param array<string, mixed> $row a row of the table `entries` */
    public static function fromRow(array $row): self
    {
        return new self(
            (int) $row['id'],
            $row['name'],
            $row['street'],
            $row['town'],
            $row['number'],
            $row['note'],
            (int) $row['revision'],
        );
    }

    /** The same entry with what a person typed into the form; throws when a field is no good. */
    public function withInput(string $number, string $note): self
    {
        if (preg_match(self::NUMBER, $number) !== 1) {
            throw new InvalidArgumentException("not a telephone number: $number");
        }
        return new self(
            $this->id,
            $this->name,
            $this->street,
            $this->town,
            $number,
            trim($note),
            $this->revision + 1,
        );
    }
}
