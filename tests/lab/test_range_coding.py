"""The range coder gives back what it took, refuses what it never made, and, with the load of large
blocks, notices an allocator that is wrong. No input makes it touch memory that is not its own: the
programs are built with sanitizers for that.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest
import shared_home

pytestmark = pytest.mark.full

REPOSITORY = Path(__file__).resolve().parents[2]
RANGE_CODING = REPOSITORY / "workloads" / "range-coding"
CODERS = ("range-encoder", "range-decoder")
WARNINGS = ["-std=c17", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# An exit code that the programs themselves never have.
SANITIZER_FOUND = 99

BLOCK = 64 * 1024  # STREAM_BLOCK of stream.h


def compile_program(target: Path, sources: list[Path], flags: list[str]) -> None:
    words = ["cc", *WARNINGS, *flags, "-o", str(target), *map(str, sources)]
    subprocess.run(words, check=True)


def build(thing: str, flags: list[str]) -> Path:
    """Returns the folder of every program, built with `flags`."""

    def compile_into(folder: Path) -> None:
        for name in CODERS:
            sources = [RANGE_CODING / source for source in (f"{name}.c", "model.c", "stream.c")]
            compile_program(folder / name, sources, ["-D_GNU_SOURCE", *flags])
        compile_program(
            folder / "chunk-search", [RANGE_CODING / "chunk-search.c"], [*flags, "-pthread"]
        )

    sources = [Path(__file__), RANGE_CODING, RANGE_CODING.parent / "micro" / "micro.h"]
    return shared_home.programs(thing, sources, compile_into)


@pytest.fixture(scope="session")
def sanitized() -> Path:
    return build("range-sanitized", SANITIZERS)


@pytest.fixture(scope="session")
def plain() -> Path:
    """As the workloads have them: an allocator can be put under these."""
    return build("range-plain", ["-O2"])


def run(program: Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    sanitizers = {
        "ASAN_OPTIONS": f"exitcode={SANITIZER_FOUND}",
        "UBSAN_OPTIONS": f"exitcode={SANITIZER_FOUND}",
    }
    return subprocess.run(
        [str(program), *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | sanitizers | environment,
        check=False,
    )


def digest(output: str) -> str:
    found = re.search(r"(?m)^(?:content: \d+ bytes, )?digest:? ([0-9a-f]{16})$", output)
    assert found, output
    return found[1]


def noise(size: int, alphabet: int = 256) -> bytes:
    generator = random.Random(size)
    return bytes(generator.randrange(alphabet) for _ in range(size))


def encoded(programs: Path, content: bytes, folder: Path) -> Path:
    """The stream that the encoder makes of `content`."""
    source, stream = folder / "content", folder / "stream"
    source.write_bytes(content)
    done = run(programs / "range-encoder", source, 0, stream)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("check ok\n")
    return stream


# -------------------------------------------------------------------- round trip

CONTENTS = {
    "empty": b"",
    "one byte": b"x",
    "every byte once": bytes(range(256)),
    "every byte, rising, many times": bytes(range(256)) * 300,
    "all equal, zeros": bytes(3 * BLOCK),
    "all equal, ones": b"\xff" * (BLOCK + 1),
    "a surprise after a long run": b"a" * (BLOCK - 1) + b"\xff" + b"a" * 10,
    "two bytes that alternate": b"ab" * BLOCK,
    "a block less one": noise(BLOCK - 1),
    "a block": noise(BLOCK),
    "random": noise(5 * BLOCK + 7),
    "two symbols": noise(2 * BLOCK, alphabet=2),
    "text": (RANGE_CODING / "README.md").read_bytes() * 30,
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_what_was_encoded_is_decoded(sanitized: Path, content: bytes, tmp_path: Path) -> None:
    stream = encoded(sanitized, content, tmp_path)
    done = run(sanitized / "range-decoder", stream, 0, tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("check ok\n")
    assert (tmp_path / "again").read_bytes() == content


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        # One possible half out of 16 keeps some parts of the total: near nothing, but not nothing.
        ("all equal, zeros", 0.0, 0.01),
        ("two bytes that alternate", 0.0, 0.01),  # only a model that knows the byte before sees it
        ("two symbols", 0.125, 0.14),  # one bit in eight, and what learning costs
        ("text", 0.3, 0.7),
        ("random", 1.0, 1.05),
    ],
)
def test_content_becomes_as_small_as_its_order_1_entropy_allows(
    sanitized: Path, tmp_path: Path, name: str, least: float, most: float
) -> None:
    content = CONTENTS[name]
    stream = encoded(sanitized, content, tmp_path)
    assert least <= stream.stat().st_size / len(content) <= most


def test_both_programs_print_the_same_digest_of_content_that_is_repeated(
    plain: Path, tmp_path: Path
) -> None:
    content = noise(3 * BLOCK)
    stream = encoded(plain, content, tmp_path)
    encoder = run(plain / "range-encoder", tmp_path / "content", 2)
    decoder = run(plain / "range-decoder", stream, 2)
    assert encoder.stdout.startswith(f"content: {2 << 20} bytes, ")
    assert digest(encoder.stdout) == digest(decoder.stdout)
    once = run(plain / "range-decoder", stream)
    assert digest(once.stdout) != digest(decoder.stdout)


def test_nothing_cannot_be_repeated(sanitized: Path, tmp_path: Path) -> None:
    stream = encoded(sanitized, b"", tmp_path)
    for program, source in zip(CODERS, (tmp_path / "content", stream), strict=True):
        done = run(sanitized / program, source, 1)
        assert done.returncode == 1
        assert "the input is empty" in done.stderr


# -------------------------------------------------------------------- bad input


def assert_refused(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("range coder: ")
    assert len(done.stderr.splitlines()) == 1
    assert "check ok" not in done.stdout


def test_a_stream_cut_off_anywhere_is_refused(sanitized: Path, tmp_path: Path) -> None:
    whole = encoded(sanitized, b"abracadabra", tmp_path).read_bytes()
    cut = tmp_path / "cut"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        assert_refused(run(sanitized / "range-decoder", cut))


def test_a_changed_byte_never_changes_the_content_unnoticed(
    sanitized: Path, tmp_path: Path
) -> None:
    content = b"abracadabra " * 3
    whole = encoded(sanitized, content, tmp_path).read_bytes()
    damaged, again = tmp_path / "damaged", tmp_path / "again"
    refused = 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        damaged.write_bytes(changed)
        done = run(sanitized / "range-decoder", damaged, 0, again)
        if done.returncode == 0:  # the last bytes of a block say more than its content needs
            assert again.read_bytes() == content
        else:
            assert_refused(done)
            refused += 1
    assert refused >= len(whole) - 4  # CODER_WORD of coder.h


@pytest.mark.parametrize(
    "stream",
    [
        b"no stream at all",
        b"R" + b"\xff" * 100,
        b"R" + bytes(100),
        b"R" + (BLOCK + 1).to_bytes(4, "little") + bytes(100),
        b"R" + (1).to_bytes(4, "little") + (1 << 31).to_bytes(4, "little") + bytes(100),
        b"R" + (BLOCK).to_bytes(4, "little") + (100).to_bytes(4, "little") + b"\xff" * 108 + b"E",
    ],
)
def test_what_no_encoder_made_is_refused(sanitized: Path, tmp_path: Path, stream: bytes) -> None:
    path = tmp_path / "stream"
    path.write_bytes(stream)
    assert_refused(run(sanitized / "range-decoder", path))


@pytest.mark.parametrize("program", CODERS)
def test_files_that_cannot_be_read_or_written_are_named(sanitized: Path, program: str) -> None:
    done = run(sanitized / program, "/nowhere")
    assert_refused(done)
    assert "/nowhere" in done.stderr


def test_a_full_disk_is_no_success(sanitized: Path, tmp_path: Path) -> None:
    stream = encoded(sanitized, b"abracadabra", tmp_path)
    assert_refused(run(sanitized / "range-decoder", stream, 0, "/dev/full"))


@pytest.mark.parametrize("words", [[], ["x", "many"], ["x", "-1"], ["x", "1", "y", "z"]])
def test_wrong_arguments_are_a_usage_error(sanitized: Path, words: list[str]) -> None:
    for program in CODERS:
        assert run(sanitized / program, *words).returncode == 2


# ----------------------------------------------------------------- chunk-search

LITTLE = ("--mebibytes", 64, "--chunk", "256k")


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_the_requests_are_the_same_on_any_number_of_threads(sanitized: Path, threads: int) -> None:
    done = run(sanitized / "chunk-search", *LITTLE, "--threads", threads)
    assert done.returncode == 0, done.stderr
    assert "operations: 256\n" in done.stdout
    assert re.search(r"(?m)^records_per_s: [1-9][0-9.]*$", done.stdout)
    assert done.stdout.endswith("check ok\n")
    assert digest(done.stdout) == digest(run(sanitized / "chunk-search", *LITTLE).stdout)


def test_other_chunks_are_other_requests(sanitized: Path) -> None:
    one, other = (
        run(sanitized / "chunk-search", "--mebibytes", 16, "--chunk", chunk).stdout
        for chunk in ("256k", "512k")
    )
    assert digest(one) != digest(other)


@pytest.mark.parametrize(
    "words", [["--chunk", "1k"], ["--chunk", "65537"], ["--threads", "0"], ["--mebibytes", "0"]]
)
def test_a_load_that_cannot_be_is_a_usage_error(sanitized: Path, words: list[str]) -> None:
    done = run(sanitized / "chunk-search", *words)
    assert done.returncode == 2
    assert "do not fit" in done.stderr


# -------------------------------------------------------------- wrong allocators

SAME_BLOCK_FOR_ALL = """
#include <stddef.h>
void *__libc_malloc(size_t size);
void __libc_free(void *block);
static char chunk[1 << 20];
void *malloc(size_t size) { return size == sizeof chunk ? chunk : __libc_malloc(size); }
void free(void *block) { if (block != chunk) __libc_free(block); }
"""


def library(folder: Path, source: Path) -> Path:
    target = folder / "wrong.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", target, source], check=True)
    return target


def test_a_chunk_that_two_threads_own_is_noticed(plain: Path, tmp_path: Path) -> None:
    source = tmp_path / "wrong.c"
    source.write_text(SAME_BLOCK_FOR_ALL, encoding="utf-8")
    wrong = library(tmp_path, source)
    load = ("--mebibytes", 8192, "--chunk", "1m", "--threads", 4)
    done = run(plain / "chunk-search", *load, LD_PRELOAD=str(wrong))
    assert done.returncode == 1, done.stdout
    assert "check failed" in done.stderr


@pytest.mark.parametrize(
    "fault", ["no-memory", "overlapping-blocks", "same-block-twice", "forgetful-realloc"]
)
def test_a_coder_with_a_wrong_allocator_fails_or_codes_otherwise(
    plain: Path, tmp_path: Path, fault: str
) -> None:
    wrong = library(tmp_path, Path(__file__).with_name("micro_faulty_malloc.c"))
    content = noise(BLOCK // 4)
    stream = encoded(plain, content, tmp_path)
    right = run(plain / "range-encoder", tmp_path / "content")
    encoder = run(plain / "range-encoder", tmp_path / "content", LD_PRELOAD=str(wrong), FAULT=fault)
    assert encoder.returncode != 0 or encoder.stdout != right.stdout
    if fault != "forgetful-realloc":  # the decoder knows its buffers' sizes and never grows one
        decoder = run(plain / "range-decoder", stream, LD_PRELOAD=str(wrong), FAULT=fault)
        assert decoder.returncode != 0
