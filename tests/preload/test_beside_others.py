"""Tools, libraries and plug-ins that replace the same functions as heapfit, or look for others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from comparison import PROGRAMS_FOLDER as PROGRAMS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from subjects import compiled, run

PLATFORM = Path(__file__).parents[2] / "allocator" / "platform"


@pytest.fixture(scope="session")
def objects_of_new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("objects_of_new.cpp", tmp_path_factory.mktemp("valgrind"), "-g", "-O0")


def test_memcheck_finds_errors_and_leaks_of_objects_made_by_new(
    objects_of_new: Path, library: Path
) -> None:
    done = run("valgrind", "-q", "--leak-check=full", objects_of_new, preload=library)
    assert "Invalid write of size 1" in done.stderr
    assert "0 bytes after a block of size 40 alloc'd" in done.stderr
    assert "40 bytes in 1 blocks are definitely lost" in done.stderr


@pytest.mark.parametrize("tool", ["helgrind", "drd"])
def test_tools_for_threads_report_nothing_of_the_library(
    tool: str, objects_of_new: Path, library: Path
) -> None:
    done = run("valgrind", "-q", f"--tool={tool}", objects_of_new, "threads", preload=library)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture(scope="session")
def deepbind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program beside which is a library that opens a plug-in in a folder of its own."""
    folder = tmp_path_factory.mktemp("deepbind")
    (folder / "plugins").mkdir()
    source, flags = PROGRAMS / "deepbind.c", ["-O1", "-fno-builtin", "-fPIC"]
    runpath = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]
    for words in (
        ["-shared", "-DPLUGIN", source, "-o", folder / "plugins/libplugin.so"],
        ["-shared", "-DOPENER", source, f"{runpath[0]}/plugins", "-o", folder / "libopener.so"],
        [source, "-L", folder, "-lopener", *runpath, "-o", folder / "program"],
    ):
        subprocess.run(["gcc", *flags, *words], check=True)
    return folder / "program"


def test_a_plug_in_that_is_opened_with_deepbind_shares_objects_with_the_program(
    deepbind: Path, library: Path
) -> None:
    done = run(deepbind, preload=library)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_deepbind_is_kept_where_the_program_needs_it(deepbind: Path, default_library: Path) -> None:
    """The plug-in then gets the C library's malloc, as the documentation says."""
    done = run(deepbind, preload=default_library, settings="deepbind:keep")
    assert (done.returncode < 0, done.stdout) == (True, "")
    assert "invalid pointer" in done.stderr


@pytest.fixture(scope="session")
def other_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a program and of a library that replaces functions of the C library."""
    folder = tmp_path_factory.mktemp("other_calls")
    compiled("other_calls.c", folder, "-fno-builtin", "-shared", "-fPIC", to="libother.so")
    compiled("other_clock.c", folder, "-fno-builtin", to="program")
    return folder


@pytest.mark.parametrize("first", ["the library", "the other"])
def test_a_library_whose_replacements_of_system_calls_allocate(
    first: str, other_calls: Path, library: Path
) -> None:
    both = [library, other_calls / "libother.so"]
    preload = ":".join(str(each) for each in (both if first == "the library" else both[::-1]))
    done = run(other_calls / "program", preload=preload)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# What the libraries call of others. A name that is new here must not be called under a lock, nor
# before the heap is ready: another library may have a function of that name which allocates.
@pytest.mark.parametrize("link_start", ["0", "0xffffffffff700000"])
def test_functions_of_the_kernels_object_are_found_wherever_it_is_linked(
    tmp_path: Path, link_start: str
) -> None:
    shared, finder = tmp_path / "shared.so", tmp_path / "finder"
    (tmp_path / "shared.c").write_text("int wanted(void) { return 42; }\n")
    start = [f"-Wl,-Ttext-segment={link_start}", "-Wl,--hash-style=gnu"]
    words = ["gcc", "-O1", "-shared", "-nostdlib", *start, "-o", shared, tmp_path / "shared.c"]
    subprocess.run(words, check=True)
    sources = [PROGRAMS / "kernel_object.c", PLATFORM / "symbol.c"]
    subprocess.run(["gcc", "-O1", f"-I{PLATFORM}", *sources, "-o", finder], check=True)
    assert subprocess.run([finder, shared]).returncode == 42


# Without a lock, and late: the control channel, statistics, the start of a thread.
CALLED_BY_NAME = """
accept4 bind close connect dprintf dup2 fcntl fprintf fwrite geteuid getpid getsockopt listen lseek
memfd_create poll pread pthread_attr_destroy pthread_attr_init pthread_attr_setdetachstate
pthread_attr_setstacksize pthread_create pthread_setcancelstate read readlink recv send sigaction
sigprocmask socket stderr sysconf write
"""
# They do nothing but what they say, whoever defines them; others must see what happens to memory
# (allocator/platform/call.c).
HARMLESS = """
__environ __errno_location abort environ getauxval gnu_get_libc_version madvise memchr memcmp
memcpy memmove memset mincore mmap mprotect mremap munmap sigemptyset sigfillset strchr strcmp
strlen strncmp strnlen strrchr strstr strtol strtoul
"""
# The dynamic linker and the C library's own affairs, for which there is nothing else.
OF_THE_C_LIBRARY = """
_ITM_deregisterTMCloneTable _ITM_registerTMCloneTable _ZSt15get_new_handlerv
_ZSt17__throw_bad_allocv __cxa_finalize __gmon_start__ __msan_init __register_atfork __tsan_init
dl_iterate_phdr dlsym pthread_key_create pthread_setspecific
"""
# For the decoder of machine code, which is linked into the library with pools.
OF_POOLS = """
__assert_fail __memcpy_chk __memmove_chk __memset_chk __stack_chk_fail __strcpy_chk exit open strcpy
"""


def test_the_libraries_call_no_function_by_name_that_is_not_listed(library: Path) -> None:
    with library.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        names = {each.name for each in symbols.iter_symbols() if each["st_shndx"] == "SHN_UNDEF"}
    known = set((CALLED_BY_NAME + HARMLESS + OF_THE_C_LIBRARY).split())
    if "pools" in library.name:
        names = {name for name in names if not name.startswith("Zydis")}
        known |= set(OF_POOLS.split())
    assert names - {""} <= known


@pytest.mark.parametrize("binding", ["lazy", "now"])
def test_a_resolver_of_the_programs_may_allocate(
    binding: str, library: Path, tmp_path: Path
) -> None:
    program = compiled("early.c", tmp_path, "-fno-builtin", f"-Wl,-z,{binding}")
    done = run(program, preload=library, settings="stats_at_exit:1")
    assert done.returncode == 0
    assert "heapfit" in done.stderr, "the options are read so early, too"


def test_objects_of_the_malloc_before_a_library_that_comes_late_are_told_of(
    default_library: Path, tmp_path: Path
) -> None:
    flags = ["-fno-builtin", "-fPIC"]
    program = compiled("late.c", tmp_path, *flags)
    flags += ["-shared", "-DSHARES", f"-Wl,-rpath,{default_library.parent}"]
    shares = compiled("late.c", tmp_path, *flags, default_library, to="libshares.so")
    done = run(program, shares)
    assert "is of the malloc that the program had before it loaded heapfit" in done.stderr


def test_a_child_does_not_wait_for_the_dynamic_linker(library: Path, tmp_path: Path) -> None:
    program = compiled("linker_busy.c", tmp_path, "-fno-builtin")
    assert run(program, preload=library).returncode == 0
