<?php
// Run by Debian's phpunit.
use PHPUnit\Framework\TestCase;

final class ParserTest extends TestCase
{
    public static function sizes(): array
    {
        return array_map(fn($n) => [$n], range(0, 300));
    }

    /** @dataProvider sizes */
    public function testSerializedArraysComeBack(int $n): void
    {
        $array = array_map(fn($i) => str_repeat(chr(65 + $i % 26), $i), range(0, $n));
        $this->assertSame($array, unserialize(serialize($array)));
        $this->assertEquals($array, json_decode(json_encode($array), true));
    }

    public function testMocks(): void
    {
        $mock = $this->createMock(ArrayAccess::class);
        $mock->method('offsetGet')->willReturnCallback(fn($i) => $i * 2);
        for ($i = 0; $i < 500; $i++) $this->assertSame($i * 2, $mock->offsetGet($i));
    }

    public function testFailureIsReported(): void
    {
        $this->expectException(DivisionByZeroError::class);
        echo intdiv(1, 0);
    }
}
