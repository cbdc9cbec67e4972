"""Ask for 1,500 pages, in eight threads; prints how many came: gunicorn_load.py PORT"""

import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen


def page(number: int) -> int:
    with urlopen(f"http://127.0.0.1:{sys.argv[1]}/?{number}", timeout=60) as answer:
        return len(answer.read())


with ThreadPoolExecutor(8) as threads:
    lengths = list(threads.map(page, range(1500)))
print(f"{len(lengths)} pages, {sum(lengths)} bytes")
