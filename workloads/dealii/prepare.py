"""Builds the program of `dealii` and leaves nothing but the program.

Usage: prepare.py DATA_FOLDER
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as build:
        # The program is the same wherever it was built.
        flags = f"CMAKE_CXX_FLAGS=-ffile-prefix-map={build}=."
        configure = ["cmake", "-S", str(HERE), "-B", build, "-D", "CMAKE_BUILD_TYPE=Release"]
        configure += ["-D", flags]
        for command in configure, ["cmake", "--build", build]:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"prepare.py: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        shutil.copy2(Path(build) / "peak", folder / "peak")


if __name__ == "__main__":
    main()
