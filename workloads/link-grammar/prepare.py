"""Makes the text of `link-grammar`: plain English sentences of Perl's documentation, one per line.

Questions and answers that people wrote, not lists and code: paragraphs of the frequently asked
questions and the tutorials, without markup. Sentences are of moderate length, as the time that a
parse takes grows with its cube. Needs Python's standard library only; same input, same output.

Usage: prepare.py DATA_FOLDER
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

PODS = Path("/usr/share/perl")
# The documents that are prose for most of their length.
DOCUMENTS = ("perlfaq*", "perl*tut", "perlhack*", "perlpolicy", "perlintro", "perlstyle", "perlsec")
FEWEST_WORDS, MOST_WORDS = 6, 16
SENTENCES = 900

# C<code> and the like, without others inside; what is left of it is its text.
MARKUP = re.compile(r"[A-Z]<(?:[^<>|]*\|)?([^<>]*)>")
SENTENCE_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")
WORDS = re.compile(r"[A-Z][a-z']*(?:,? [A-Za-z][a-z']*)+[.?]")


def paragraphs(document: str) -> Iterator[str]:
    """The paragraphs of running text: code is indented, and commands begin with `=`."""
    for paragraph in document.split("\n\n"):
        if paragraph[:1].isalpha():
            text, changes = paragraph, 1
            while changes:
                text, changes = MARKUP.subn(r"\1", text)
            yield " ".join(text.split())


def sentences(folder: Path) -> Iterator[str]:
    """Every sentence of letters, commas and a full stop, each once, in the documents' order."""
    seen = set()
    for path in sorted({path for name in DOCUMENTS for path in folder.glob(f"{name}.pod")}):
        for paragraph in paragraphs(path.read_text(encoding="utf-8", errors="replace")):
            for sentence in SENTENCE_END.split(paragraph):
                fits = FEWEST_WORDS <= len(sentence.split()) <= MOST_WORDS
                if fits and WORDS.fullmatch(sentence) and sentence not in seen:
                    seen.add(sentence)
                    yield sentence


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = sorted(PODS.glob("*/pod/perlfaq.pod"))
    if not found:
        sys.exit(f"prepare.py: no documentation below {PODS}; install the package perl-doc")
    chosen = list(sentences(found[-1].parent))[:SENTENCES]
    if len(chosen) < SENTENCES:
        sys.exit(f"prepare.py: {found[-1].parent} has {len(chosen)} sentences only")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sentences.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
