"""Compile the lab's native parts where they are missing: in a source checkout.

The wheel carries them compiled, each beside the module that uses it. What is compiled here appears
whole or not at all, whoever else compiles the same meanwhile.
"""

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from heapfit.errors import HeapfitError
from heapfit.files import replacing
from heapfit.paths import data_dir, keeping

_DIGEST_LETTERS = 12


def system() -> list[str]:
    """Return what tells apart the machines that may share a data folder: what is compiled on one
    may not run on another."""
    return [platform.machine(), *platform.libc_ver()]


def compile_native(target: Path, arguments: Sequence[str], name: str, needs: str = "") -> None:
    """Compile `target` from `arguments`: flags, sources and libraries, in the compiler's order.

    `name` is what messages call it, `needs` the package that a failure may be for want of. Raises
    HeapfitError, which says what to do.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise HeapfitError(f"{name} is not built and there is no C compiler; install gcc")
    with replacing(target) as unfinished:
        command = [*compiler.split(), *arguments, "-o", str(unfinished)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            wanted = f" (it needs {needs})" if needs else ""
            raise HeapfitError(f"cannot compile {name}{wanted}: {done.stderr.strip() or done.args}")


def compiled_once(
    packaged: Path, arguments: Sequence[str], inputs: Sequence[Path], needs: str = ""
) -> Path:
    """Return `packaged` where the wheel has brought it, else the same as `compile_native` makes it,
    kept in heapfit's data folder.

    It is compiled anew whenever one of `inputs`, the sources and headers, or an argument changes.
    """
    if packaged.exists():
        return packaged
    if not all(path.exists() for path in inputs):
        raise HeapfitError(
            f"{packaged.name} is missing from this installation; "
            f"install {needs or 'gcc'} and build heapfit anew"
        )
    content = hashlib.sha256("\0".join([*system(), *arguments]).encode())
    for path in inputs:
        content.update(path.read_bytes())
    digest = content.hexdigest()[:_DIGEST_LETTERS]
    built = data_dir() / "native" / f"{packaged.stem}-{digest}{packaged.suffix}"
    if not built.exists():
        with keeping(built.parent):
            built.parent.mkdir(parents=True, exist_ok=True)
        compile_native(built, arguments, packaged.name, needs)
    return built
