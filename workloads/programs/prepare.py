#!/usr/bin/env python3
"""Make the input of a program, the same each time: prepare.py PROGRAM FOLDER."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

WORDS = ["memory", "page", "heap", "block", "thread", "lock", "cache", "line", "request", "reply"]
RANDOM = random.Random(1)


def sentence(words: int = 14) -> str:
    return " ".join(RANDOM.choices(WORDS, k=words)).capitalize() + "."


def paragraph() -> str:
    return " ".join(sentence() for _ in range(6))


def inkscape(folder: Path) -> None:
    """A drawing of paths with gradients and blurred groups."""
    shapes = []
    for n in range(600):
        points = " ".join(
            f"{RANDOM.uniform(0, 1000):.1f},{RANDOM.uniform(0, 1000):.1f}" for _ in range(8)
        )
        blur = ' filter="url(#b)"' if n % 200 == 0 else ""
        shapes.append(f'<path d="M {points} Z" fill="url(#g{n % 20})" fill-opacity=".4"{blur}/>')
    gradients = "".join(
        f'<linearGradient id="g{n}"><stop offset="0" stop-color="#{n * 12:02x}40a0"/>'
        f'<stop offset="1" stop-color="#f0{n * 12:02x}30"/></linearGradient>'
        for n in range(20)
    )
    blur = '<filter id="b"><feGaussianBlur stdDeviation="6"/></filter>'
    (folder / "drawing.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="1000" height="1000">'
        f"<defs>{gradients}{blur}</defs>{''.join(shapes)}</svg>"
    )


def libreoffice(folder: Path) -> None:
    """A text of headings, paragraphs and tables, as LibreOffice's flat XML."""
    namespaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "text", "table")
    )
    parts = []
    for chapter in range(60):
        parts.append(f'<text:h text:outline-level="1">{chapter + 1} {sentence(4)}</text:h>')
        parts += [f"<text:p>{paragraph()}</text:p>" for _ in range(12)]
        parts.append('<table:table><table:table-column table:number-columns-repeated="5"/>')
        for _ in range(12):
            numbers = [f"<text:p>{RANDOM.random():.6f}</text:p>" for _ in range(5)]
            cells = "".join(f"<table:table-cell>{each}</table:table-cell>" for each in numbers)
            parts.append(f"<table:table-row>{cells}</table:table-row>")
        parts.append("</table:table>")
    (folder / "text.fodt").write_text(
        f'<?xml version="1.0" encoding="UTF-8"?><office:document {namespaces} office:version="1.3" '
        'office:mimetype="application/vnd.oasis.opendocument.text"><office:body><office:text>'
        f"{''.join(parts)}</office:text></office:body></office:document>"
    )


def pdftex(folder: Path) -> None:
    """A book with formulas and tables."""
    parts = [r"\documentclass{report}\begin{document}\tableofcontents"]
    for _ in range(40):
        parts.append(rf"\chapter{{{sentence(4)}}}")
        for _ in range(10):
            parts.append(paragraph())
            factor, power = RANDOM.randint(1, 99), RANDOM.randint(2, 9)
            parts.append(rf"\[\sum_{{i=0}}^{{n}} {factor} x_i^{power} = \frac{{a}}{{b}}\]")
        rows = r"\\".join("&".join(f"{RANDOM.random():.4f}" for _ in range(6)) for _ in range(20))
        parts.append(rf"\begin{{tabular}}{{rrrrrr}}{rows}\end{{tabular}}\par")
    (folder / "book.tex").write_text("\n".join([*parts, r"\end{document}"]))


def tsc(folder: Path) -> None:
    """Generic interfaces and classes that refer to each other."""
    lines = ["type Box<T> = { value: T; next?: Box<T> };"]
    for n in range(1500):
        m = RANDOM.randrange(max(n, 1))
        base = f" extends I{m}" if n else ""
        members = f"f{n}: Box<number>; g{n}(x: Partial<I{m}>): keyof I{m};"
        lines.append(f"interface I{n}{base} {{ {members} }}")
        lines.append(f"function h{n}<T extends I{n}>(x: T): Box<T> {{ return {{ value: x }}; }}")
    (folder / "types.ts").write_text("\n".join(lines) + "\n")


def javac(folder: Path) -> None:
    """Classes with generic collections, streams and lambdas."""
    for n in range(300):
        methods = "".join(
            f"  List<Integer> m{k}(Map<String, List<Integer>> in) {{\n"
            f"    return in.entrySet().stream().filter(e -> e.getKey().length() > {k})\n"
            f"      .flatMap(e -> e.getValue().stream()).map(v -> v * {k + 1})\n"
            "      .collect(Collectors.toList());\n  }\n"
            for k in range(8)
        )
        (folder / f"C{n}.java").write_text(
            f"import java.util.*;\nimport java.util.stream.*;\nclass C{n} {{\n{methods}}}\n"
        )


def git(folder: Path) -> None:
    """A repository of 1,500 commits to 300 files."""
    files = {f"src/{n % 17}/file{n}.txt": [sentence() for _ in range(80)] for n in range(300)}
    stream = []
    for commit in range(1500):
        stream.append(
            "commit refs/heads/main\n"
            f"committer A <a@b> {1_600_000_000 + commit} +0000\ndata {len(str(commit))}\n{commit}\n"
        )
        changed = files if commit == 0 else RANDOM.sample(sorted(files), 4)
        for name in changed:
            files[name][RANDOM.randrange(80)] = sentence()
            text = "\n".join(files[name]) + "\n"
            stream.append(f"M 100644 inline {name}\ndata {len(text)}\n{text}\n")
    where = folder / "repository"
    subprocess.run(["git", "init", "--quiet", "--bare", where], check=True)
    subprocess.run(
        ["git", "-C", where, "fast-import", "--quiet"], input="".join(stream), text=True, check=True
    )


def gdb(folder: Path) -> None:
    """A program with much debugging information."""
    headers = ["algorithm", "functional", "iostream", "map", "memory", "regex", "string", "vector"]
    lines = [f"#include <{each}>" for each in headers]
    for n in range(60):
        result = f'(int)s.m["{n}"].size() + std::regex_match("a", s.r)'
        lines.append(
            f"struct S{n} {{ std::map<std::string, std::vector<S{n} *>> m; std::regex r; }};"
        )
        lines.append(f"int f{n}(S{n} &s) {{ return {result}; }}")
    calls = "".join(f" {{ S{k} s; n += f{k}(s); }}" for k in range(60))
    lines.append(f"int main() {{ int n = 0;{calls} return n; }}")
    (folder / "program.cc").write_text("\n".join(lines) + "\n")
    subprocess.run(["g++", "-g", "-O0", "-o", "program", "program.cc"], cwd=folder, check=True)


def qemu(folder: Path) -> None:
    """A disk whose first sector reads the rest of it, computes, and ends the machine by a port."""
    code = bytes.fromhex(
        "fa 31c0 8ed8 bc007c"  # cli; ds = 0; sp = 0x7c00
        "be0001"  # si = 256 times
        "b80010 8ec0 31db"  # es:bx = 0x1000:0
        "b402 b010 b500 b102 b600 b280 cd13"  # read 16 sectors
        "b90020 31ff"  # cx = 8,192; di = 0
        "26f725 83c702 e2f8"  # mul word es:[di]; di += 2; loop
        "4e 75db"  # dec si; jnz to es:bx
        "b010 ba0105 ee f4"  # out 0x501, 16: exit code 33; hlt
    )
    disk = bytearray(1 << 20)
    disk[: len(code)] = code
    disk[510:512] = b"\x55\xaa"
    disk[512:] = RANDOM.randbytes(len(disk) - 512)
    (folder / "disk.img").write_bytes(disk)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
