"""Children by fork while threads allocate, pools of workers, and many short commands."""

import hashlib
import multiprocessing
import os
import subprocess
import threading

FORKS = 40
WORKERS = 4
TASKS = 60
COMMANDS = 60


def churn(stop: threading.Event) -> None:
    """Allocates and frees all the time, so that a fork finds malloc in the middle of its work."""
    held: list[bytes] = []
    size = 1
    while not stop.is_set():
        size = size * 75 % 65537
        held.append(bytes(size % 3000))
        if len(held) > 300:
            del held[:150]


def digest_of(number: int) -> str:
    digest = hashlib.sha256()
    for part in range(300):
        digest.update(repr([number, part, {str(part): "x" * (part % 97)}]).encode())
    return digest.hexdigest()[:16]


def fork_while_threads_allocate() -> str:
    stop = threading.Event()
    threads = [threading.Thread(target=churn, args=(stop,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = []
    for number in range(FORKS):
        child = os.fork()
        if child == 0:
            os._exit(int(digest_of(number), 16) % 200)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    return f"forks {codes == [int(digest_of(number), 16) % 200 for number in range(FORKS)]}"


def pool_of_workers() -> str:
    with multiprocessing.get_context("fork").Pool(WORKERS, maxtasksperchild=10) as pool:
        results = pool.map(digest_of, range(TASKS), chunksize=2)
    return f"pool {hashlib.sha256(''.join(results).encode()).hexdigest()}"


def short_commands() -> str:
    lines = []
    for number in range(COMMANDS):
        command = ["sh", "-c", f"echo {number}; exit {number % 3}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        lines.append(f"{done.stdout.strip()}:{done.returncode}")
    with subprocess.Popen(["sort", "-rn"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sort:
        output, _ = sort.communicate("\n".join(map(str, range(20000))).encode())
    return f"commands {' '.join(lines[:6])}… sorted {hashlib.sha256(output).hexdigest()[:16]}"


print(fork_while_threads_allocate(), flush=True)
print(pool_of_workers(), flush=True)
print(short_commands())
