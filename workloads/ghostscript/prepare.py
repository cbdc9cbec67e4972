"""Unpacks the document of `ghostscript`: Valgrind's manual, some hundred pages of real PDF.

Usage: prepare.py DATA_FOLDER
"""

import gzip
import sys
from pathlib import Path

MANUAL = Path("/usr/share/doc/valgrind/valgrind_manual.pdf.gz")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not MANUAL.exists():
        sys.exit(
            f"prepare.py: {MANUAL} is missing; install the package valgrind, "
            "and let dpkg unpack documentation (see path-exclude in /etc/dpkg/dpkg.cfg.d)"
        )
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manual.pdf").write_bytes(gzip.decompress(MANUAL.read_bytes()))


if __name__ == "__main__":
    main()
