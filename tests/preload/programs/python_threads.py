"""Threads that hand blocks to one another, and threads that end before their blocks do."""

import hashlib
import queue
import threading

PRODUCERS = CONSUMERS = 4
MESSAGES = 4000
GENERATIONS = 60
THREADS_PER_GENERATION = 8


def message(producer: int, number: int) -> bytes:
    """Sizes from a few bytes to 20 kB, the same in every run."""
    size = (number * 7919 + producer * 104729) % 257
    return bytes([producer, number % 256]) * (size if number % 50 else size * 40 + 1)


def pass_messages() -> str:
    """What is made in one thread is dropped in another."""
    box: queue.Queue[bytes | None] = queue.Queue(maxsize=200)
    totals = [0] * CONSUMERS

    def produce(producer: int) -> None:
        for number in range(MESSAGES):
            box.put(message(producer, number))

    def consume(consumer: int) -> None:
        held: list[bytes] = []
        while (block := box.get()) is not None:
            totals[consumer] += int.from_bytes(hashlib.sha256(block).digest()[:4], "big")
            held.append(block)
            if len(held) > 100:
                del held[::2]

    makers = [threading.Thread(target=produce, args=(number,)) for number in range(PRODUCERS)]
    takers = [threading.Thread(target=consume, args=(number,)) for number in range(CONSUMERS)]
    for thread in makers + takers:
        thread.start()
    for thread in makers:
        thread.join()
    for _ in takers:
        box.put(None)
    for thread in takers:
        thread.join()
    return f"messages {PRODUCERS * MESSAGES}, sum {sum(totals)}"


def outlive_threads() -> str:
    """Blocks of threads that are gone are read, grown and dropped by their successors."""
    inherited: dict[int, list[bytearray]] = {0: [bytearray(b"start")]}

    def live(generation: int, number: int) -> None:
        parents = inherited.get((number * 5) % THREADS_PER_GENERATION, [])
        own = [bytearray(block[-200:]) + bytes([generation, number]) * 9 for block in parents]
        own.extend(bytearray([number]) * (generation * 11 + 1) for _ in range(6))
        children[number] = own[-12:]

    for generation in range(GENERATIONS):
        children: dict[int, list[bytearray]] = {}
        threads = [
            threading.Thread(target=live, args=(generation, number))
            for number in range(THREADS_PER_GENERATION)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        inherited = children
    digest = hashlib.sha256()
    for number in sorted(inherited):
        for block in inherited[number]:
            digest.update(block)
    return f"generations {GENERATIONS}, digest {digest.hexdigest()}"


print(pass_messages())
print(outlive_threads())
