"""Builds `range-encoder` or `range-decoder` and makes what it works on.

Two contents, each a whole number of the coder's blocks: `random`, bytes from a seeded generator,
and `text`, the Perl documentation as Debian ships it. The programs read a content again and again
until they have as much as they were asked for; every block is coded afresh, so to the coder a
repeated text is as new as the first, and the disk has no part in the time. The encoder works on
`NAME.raw`, the decoder on `NAME.range`, which is decoded here once and compared with the content.

Needs a C compiler and Python's standard library only; same packages, same output.

Usage: prepare.py range-encoder|range-decoder DATA_FOLDER
"""

import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ("range-encoder", "range-decoder")
COMPILE = ("cc", "-std=c17", "-D_GNU_SOURCE", "-O3")
SHARED_SOURCES = ("model.c", "stream.c")

BLOCK = 64 * 1024  # STREAM_BLOCK of stream.h
RANDOM_BLOCKS = 1024  # 64 MiB: more than the processor's caches hold
SEED = 1979

DOCUMENTATION = "/usr/share/perl"  # of the package perl-doc
PAGES = "*/pod/*.pod"
FEWEST_PAGES = 100  # some come with other packages; too few mean that perl-doc is missing


def build(program: str, folder: Path) -> Path:
    """Compiles `program` into `folder`."""
    target = folder / program
    sources = [str(HERE / name) for name in (f"{program}.c", *SHARED_SOURCES)]
    subprocess.run([*COMPILE, "-o", str(target), *sources], check=True)
    return target


def random_content() -> bytes:
    generator = random.Random(SEED)
    return b"".join(generator.randbytes(BLOCK) for _ in range(RANDOM_BLOCKS))


def text_content() -> bytes:
    """The pages in the order of their names, cut to whole blocks."""
    found = {page.resolve() for page in Path(DOCUMENTATION).glob(PAGES)}  # folders are linked
    pages = sorted(found, key=lambda page: page.name)
    if len(pages) < FEWEST_PAGES:
        sys.exit(f"prepare.py: {DOCUMENTATION}/{PAGES} is missing; install the package perl-doc")
    text = b"".join(page.read_bytes() for page in pages)
    return text[: len(text) // BLOCK * BLOCK]


CONTENTS: dict[str, Callable[[], bytes]] = {"random": random_content, "text": text_content}


def encode(content: Path, stream: Path, tools: Path) -> None:
    """Encodes a file, and decodes the result to see that it is the same again."""
    again = tools / "again.raw"
    for program, source, target in (
        ("range-encoder", content, stream),
        ("range-decoder", stream, again),
    ):
        command = [str(word) for word in (tools / program, source, 0, target)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    if again.read_bytes() != content.read_bytes():
        sys.exit(f"prepare.py: {content.name} is not what it was after coding there and back")


def prepare_encoder(folder: Path) -> None:
    build("range-encoder", folder)
    for name, content in CONTENTS.items():
        (folder / f"{name}.raw").write_bytes(content())


def prepare_decoder(folder: Path) -> None:
    build("range-decoder", folder)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        tools = Path(temporary)
        for program in PROGRAMS:
            build(program, tools)
        for name, content in CONTENTS.items():
            (tools / f"{name}.raw").write_bytes(content())
            encode(tools / f"{name}.raw", folder / f"{name}.range", tools)


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in PROGRAMS:
        sys.exit(__doc__)
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    prepare = prepare_encoder if sys.argv[1] == "range-encoder" else prepare_decoder
    prepare(folder)


if __name__ == "__main__":
    main()
