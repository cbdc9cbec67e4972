"""Write a file or a folder whole or not at all: an older one stays until the new is complete."""

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

from heapfit.errors import HeapfitError, UsageError
from heapfit.text import SPELLED_OUT, is_text, readable, shell_word

RECORDING_MAGIC = b"heapfit\x1a"  # what a recording begins with
RECORDING_SUFFIX = ".hft"


def check_name(path: Path) -> None:
    """Raise UsageError for a path that results cannot hold, as JSON and tables are text."""
    check_named(str(path.absolute()))


def check_folder(path: Path) -> None:
    """Raise UsageError for what cannot be a folder of results, by its name or what is there."""
    check_name(path)
    nearest = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
    if not nearest.is_dir():
        raise UsageError(f"{nearest} is not a folder; choose another place with --out")


def check_named(word: str) -> None:
    """Raise UsageError for a word of a command line, such as a path, for the same reason."""
    if not is_text(word):
        raise UsageError(f"{readable(word)} is not UTF-8; give that file or folder another name")


def check_new(path: Path) -> None:
    """Raise UsageError where a file is that nobody may lose, such as a recording."""
    if os.path.lexists(path) and (path.is_file() or not path.exists() or path.is_dir()):
        raise UsageError(f"{path} is there already; move it away, or choose another with -o")


def free_name(path: Path) -> Path:
    """Return `path`, or the first with a number that is not there yet: a.hft, a-2.hft, a-3.hft."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(each for each in chain([path], numbered) if not os.path.lexists(each))


def unfinished_name(path: Path) -> Path:
    """Return where to write what is to take the place of `path`: a name that nobody else has.

    Two containers with one folder number their processes alike, so a number does not suffice.
    """
    return path.absolute().with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield where to write the file that takes the place of `path` when all is done."""
    unfinished = unfinished_name(path)
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):  # What is in the way of one is in that of the other.
            unfinished.unlink()
        raise


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder, which takes the place of `folder` when all is done.

    Where another process that does the same was quicker, its folder stays.
    """
    unfinished, before = unfinished_name(folder), _inode(folder)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        if _inode(folder) not in (None, before):
            return
        shutil.rmtree(folder, ignore_errors=True)
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def remove_tree(folder: Path) -> None:
    """Remove a folder, if it is there, with all that is in it, even below read-only folders.

    What cannot be removed stays, as does a link.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if folder.is_symlink():
        return
    for inner, names, _ in os.walk(folder):
        for each in (inner, *(os.path.join(inner, name) for name in names)):
            if not os.path.islink(each):
                with contextlib.suppress(OSError):
                    os.chmod(each, stat.S_IRWXU)  # before it is listed
    shutil.rmtree(folder, ignore_errors=True)


def write_text(path: Path, text: str, remedy: str | None = None) -> None:
    """Write `text` to `path`. Raises `HeapfitError` where it cannot be written, with the `remedy`:
    that of a study's reports, unless given."""
    write_bytes(path, text.encode(errors=SPELLED_OUT), remedy)


def write_bytes(path: Path, content: bytes, remedy: str | None = None) -> None:
    """Do the same with `content`. A link, a pipe or a device is written to, not replaced, and a
    recording neither."""
    if path.is_file() and _is_recording(path):
        check_new(path)
    in_place = path.is_symlink() or (path.exists() and not path.is_file())
    try:
        if in_place:
            path.write_bytes(content)
        else:
            with replacing(path) as unfinished:
                unfinished.write_bytes(content)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = remedy or (
            "the trials are safe, so copy the folder to a place that you may write to, and run "
            "heapfit report there"
            if is_forbidden(error)
            else "the trials are safe, so make room or mend the folder "
            f"and run: heapfit report {shell_word(path.parent)}"
        )
        raise HeapfitError(f"cannot write {path}: {reason}; {remedy}") from error


def _is_recording(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(RECORDING_MAGIC)) == RECORDING_MAGIC
    except OSError:  # Writing will fail, too, or it may be written and not read.
        return False


def is_forbidden(error: OSError) -> bool:
    """Whether it says that one may not write there, not that there is no room."""
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def write_durably(path: Path, content: bytes) -> None:
    """Write `content` to `path`, on disk when this returns; what was there stays until then."""
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError as error:  # Some network and shared file systems cannot do it with a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)
