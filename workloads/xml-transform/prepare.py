"""Makes the document of `xml-transform`: the shared MIME database, several times over.

The database that shared-mime-info ships is real but transforms in a blink, so it is repeated,
each copy with media types of its own (`text/html` becomes `text/html.2` in the third copy): every
key of the stylesheet stays a key. Needs Python's standard library only; same input, same output.

Usage: prepare.py DATA_FOLDER [COPIES]
"""

import re
import sys
from pathlib import Path

DATABASE = Path("/usr/share/mime/packages/freedesktop.org.xml")
COPIES = 5

# Media types are the only `type` attributes with a slash; a magic rule's type is a bare word.
MEDIA_TYPE = re.compile(r'(?<= type=")([^"/]+/[^"]+)(?=")')


def enlarged(database: str, copies: int) -> str:
    """The database with `copies` copies of its media types, the first of them untouched."""
    start = database.index("<mime-type ", database.index("<mime-info "))
    end = database.rindex("</mime-info>")
    head, types, tail = database[:start], database[start:end], database[end:]
    renamed = (MEDIA_TYPE.sub(rf"\g<1>.{copy}", types) for copy in range(1, copies))
    return head + types + "".join(renamed) + tail


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    if not DATABASE.exists():
        sys.exit(f"prepare.py: {DATABASE} is missing; install the package shared-mime-info")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    copies = int(sys.argv[2]) if len(sys.argv) == 3 else COPIES
    document = enlarged(DATABASE.read_text(encoding="utf-8"), copies)
    (folder / "media-types.xml").write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
