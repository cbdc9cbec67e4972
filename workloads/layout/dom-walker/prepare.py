"""Builds `dom-walker` and makes the document that it works on.

The document is Perl's manual as Debian ships it, each page turned to XHTML by Pod::Simple, which is
part of Perl. Pages that are not well-formed are left out: the parser of `dom-walker` knows no more
than XML.

Needs a C compiler, Perl and Python's standard library only; same packages, same output.

Usage: prepare.py DATA_FOLDER
"""

import subprocess
import sys
from pathlib import Path
from xml.parsers import expat

SOURCE = Path(__file__).resolve().parent.parent / "dom-walker.c"
COMPILE = ("cc", "-std=c17", "-O3", "-g", "-pthread")

DOCUMENTATION = "/usr/share/perl"  # of the package perl-doc
PAGES = "*/pod/*.pod"
FEWEST_PAGES = 100  # some come with other packages; too few mean that perl-doc is missing
SEPARATOR = "\f"

# The same characters become entities whatever other modules are installed.
CONVERT = r"""
use Pod::Simple::XHTML;
binmode STDOUT, ":utf8";
for my $file (@ARGV) {
    my $parser = Pod::Simple::XHTML->new;
    $parser->html_header("");
    $parser->html_footer("");
    $parser->html_encode_chars('<>&"');
    $parser->output_string(\my $page);
    $parser->parse_file($file);
    $page =~ tr/\f//d;
    print $page, "\f";
}
"""


def is_well_formed(page: str) -> bool:
    try:
        expat.ParserCreate().Parse(page.encode(), True)
    except expat.ExpatError:
        return False
    return True


def manual() -> str:
    """The pages in the order of their names."""
    found = {page.resolve() for page in Path(DOCUMENTATION).glob(PAGES)}  # folders are linked
    files = sorted(found, key=lambda page: page.name)
    if len(files) < FEWEST_PAGES:
        sys.exit(f"prepare.py: {DOCUMENTATION}/{PAGES} is missing; install the package perl-doc")
    words = ["perl", "-e", CONVERT, *map(str, files)]
    converted = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.decode()
    pages = [
        f'<section class="{file.stem}">\n{page}</section>\n'
        for file, page in zip(files, converted.split(SEPARATOR)[:-1], strict=True)
    ]
    return "<body>\n" + "".join(page for page in pages if is_well_formed(page)) + "</body>\n"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([*COMPILE, "-o", str(folder / "dom-walker"), str(SOURCE)], check=True)
    (folder / "manual.xhtml").write_text(manual(), encoding="utf-8")


if __name__ == "__main__":
    main()
