"""Workers that multiprocessing starts by exec (spawn), and by a server of forks (forkserver)."""

import hashlib
import multiprocessing
import os

WORKERS = 3
TASKS = 24


def digest_of(number: int) -> tuple[str, bool]:
    digest = hashlib.sha256()
    for part in range(300):
        digest.update(repr([number, part, {str(part): "x" * (part % 97)}]).encode())
    with open("/proc/self/maps", encoding="utf-8") as maps:
        preloaded = os.environ.get("LD_PRELOAD", "") in maps.read()
    return digest.hexdigest(), preloaded


def main() -> None:
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(WORKERS, maxtasksperchild=4) as pool:
            results = pool.map(digest_of, range(TASKS), chunksize=2)
        digests = "".join(digest for digest, _ in results)
        print(method, hashlib.sha256(digests.encode()).hexdigest(), flush=True)
        print("preloaded in all workers:", all(preloaded for _, preloaded in results), flush=True)


if __name__ == "__main__":
    main()
