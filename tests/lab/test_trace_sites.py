"""Names of call sites: from addresses and mappings of a process that has ended."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from conftest import Heapfit
from heapfit import symbols
from heapfit.symbols import Frame, told
from heapfit.trace.sites import Mapping, Places, parse_mappings

pytestmark = pytest.mark.full

# Calls a function through a pointer, so that a return address lies in `caller`.
SOURCE = """
#include <stdio.h>
__attribute__((noinline)) void *here(void) { return __builtin_return_address(0); }
__attribute__((noinline)) void *caller(void) { void *at = here(); __asm__ volatile(""); return at; }
int main(void)
{
    printf("%p\\n", caller());
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) fputs(line, stdout);
}
"""


def run(program: Path) -> tuple[int, list[str]]:
    """The return address, and the mappings of code as a trace has them."""
    first, *maps = subprocess.run([program], capture_output=True, text=True).stdout.splitlines()
    lines = []
    for each in maps:
        words = each.split(None, 5)
        if "x" in words[1] and len(words) > 5:
            start, end = words[0].split("-")
            lines.append(f"{start} {end} {words[2]} {words[5]}")
    return int(first, 16), lines


@pytest.mark.parametrize("flags", ["-no-pie", "-pie -Wl,-z,noseparate-code"])
def test_a_site_has_its_function_file_and_line(flags: str, tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(SOURCE)
    command = ["cc", "-g", "-O1", *flags.split(), "-o", tmp_path / "a b", tmp_path / "p.c"]
    subprocess.run(command, check=True)
    address, lines = run(tmp_path / "a b")
    frame = Places(parse_mappings(lines)).frame(address)
    assert frame.module == str(tmp_path / "a b")
    assert frame.function == "caller"
    assert frame.file is not None
    assert Path(frame.file).name == "p.c"
    assert frame.line == 4


@pytest.mark.gate
def test_a_program_that_was_built_anew_gives_no_names(tmp_path: Path) -> None:
    path = tmp_path / "p"
    named = []
    for source in (SOURCE, SOURCE.replace("caller", "other"), SOURCE):
        (tmp_path / "p.c").write_text(source)
        subprocess.run(["cc", "-g", "-O1", "-o", "p", "p.c"], check=True, cwd=tmp_path)
        if not named:
            address, lines = run(path)
            start = next(line.split()[0] for line in lines if line.endswith(str(path)))
            lines.append(f"build-id {start} {symbols.build_id(path)}")
        named.append(Places(parse_mappings(lines)).frame(address).function)
    assert named == ["caller", None, "caller"]


@pytest.mark.parametrize("folder", [".", ".debug"])
def test_a_stripped_program_has_the_lines_of_the_file_that_it_names(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / "p.c").write_text(SOURCE)
    command = ["cc", "-g", "-O1", "-Wl,--build-id=none", "-o", "p", "p.c"]
    subprocess.run(command, check=True, cwd=tmp_path)
    (tmp_path / folder).mkdir(exist_ok=True)
    for words in (
        ["--only-keep-debug", "p", f"{folder}/p.debug"],
        ["--strip-all", f"--add-gnu-debuglink={folder}/p.debug", "p"],
    ):
        subprocess.run(["objcopy", *words], check=True, cwd=tmp_path)
    address, lines = run(tmp_path / "p")
    frame = Places(parse_mappings(lines)).frame(address)
    assert (frame.function, frame.line) == ("caller", 4)
    (tmp_path / folder / "p.debug").write_bytes(b"of another build")
    assert Places(parse_mappings(lines)).frame(address).function is None


def test_builds_of_one_file_are_told_apart() -> None:
    """Three plug-ins came to one path in turn: what they allocated was added up."""
    lines = ["1000 2000 0 /p/cur.so", "build-id 1000 aaaa", "5000 6000 0 /p/cur.so",
             "build-id 5000 bbbb", "8000 9000 0 /p/one.so", "build-id 8000 cccc"]  # fmt: skip
    places = Places(parse_mappings(lines), symbols=False)
    modules = [places.frame(start + 0x101).module for start in (0x1000, 0x5000, 0x8000)]
    assert modules == ["/p/cur.so (build aaaa)", "/p/cur.so (build bbbb)", "/p/one.so"]


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    (tmp_path / "text").write_text("no ELF")
    for name in ("pipe", "text", "missing"):
        places = Places([Mapping(0x1000, 0x2000, 0, str(tmp_path / name))])
        frame = places.frame(0x1800)
        assert (frame.module, frame.function) == (str(tmp_path / name), None)


# The compiler puts the C++ library's functions into what the user wrote, and `twice` into `main`.
CPP_SOURCE = """
#include <map>
#include <memory>
#include <string>
#include <vector>
struct Session { std::string user; std::vector<int> numbers; };
static std::map<int, std::unique_ptr<Session>> sessions;
template <class Number> __attribute__((noinline)) void open_session(Number i)
{
    auto session = std::make_unique<Session>();
    session->numbers.resize(1000);
    session->user = "a name that takes memory, of number " + std::to_string(i);
    sessions.emplace(i, std::move(session));
}
static inline void twice(int i) { open_session(i); open_session(i + 1); }
int main() { for (int i = 0; i < 2000; i += 2) twice(i); }
"""


@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_sites_of_cpp_are_the_users_lines(
    run_heapfit: Heapfit, tmp_path: Path, level: str, library: Path
) -> None:
    """They were lines of unique_ptr.h and new_allocator.h, and templates of a hundred letters."""
    source = tmp_path / "p.cc"
    source.write_text(CPP_SOURCE)
    subprocess.run(["c++", "-g", level, "-o", tmp_path / "p", source], check=True)
    lines = CPP_SOURCE.splitlines()
    trace = tmp_path / "p.hft"
    run_heapfit("record", "-o", trace, "--sites", "16", "--", tmp_path / "p")
    answer = run_heapfit("profile", "--json", trace, folder=tmp_path).stdout
    found = {each["chain"][0]: each for each in json.loads(answer)["profile"]["sites"]["by_bytes"]}
    for name in ("make_unique", "resize", "to_string", "emplace"):
        number = next(at for at, line in enumerate(lines, 1) if name in line)
        [label] = [each for each in found if each.startswith(f"open_session (p.cc:{number}")]
        assert found[label]["amount"]["objects"] >= 2000
        calls = [each.partition(" (")[0] for each in found[label]["chain"]]
        assert calls == ["open_session", "twice", "main"]
    assert json.loads(answer)["profile"]["sites"]["without_lines"] == {}
    resize = next(each for each in found if "std::vector::resize" in each)
    assert found[resize]["amount"] == {**found[resize]["amount"], "objects": 2000, "bytes": 8000000}


def test_code_without_line_numbers_is_named(
    run_heapfit: Heapfit, tmp_path: Path, library: Path
) -> None:
    (tmp_path / "p.cc").write_text(CPP_SOURCE)
    subprocess.run(["c++", "-O2", "-o", tmp_path / "p", tmp_path / "p.cc"], check=True)
    trace = tmp_path / "p.hft"
    run_heapfit("record", "-o", trace, "--sites", "16", "--", tmp_path / "p")
    told = " ".join(run_heapfit("profile", trace, folder=tmp_path).stdout.split())
    assert "come from code without line numbers, in p: install its debug symbols, or" in told
    assert "open_session (std::" in told
    # As on a colleague's machine.
    (tmp_path / "p").unlink()
    told = " ".join(run_heapfit("profile", trace, folder=tmp_path).stdout.split())
    assert f"come from {tmp_path}/p, which is not on this machine" in told
    assert "compile it with -g" not in told


def test_the_symbols_of_installed_files_are_read_once_for_many_recordings() -> None:
    """Of one that may be built anew they are not kept."""
    installed = Path("/usr/bin/true").resolve()
    assert symbols._opened(installed) is symbols._opened(installed)
    built = Path(__file__)
    assert symbols._opened(built) is not symbols._opened(built)


# Two libraries of one layout, one after the other: the second lies where the first did.
LIBRARY = """
#include <stdlib.h>
__attribute__((noinline)) void *{name}(int size) {{ void *volatile p = malloc(size); return p; }}
"""
HOST = """
#include <dlfcn.h>
#include <stdlib.h>
static void use(const char *file, const char *name, int times, int frees)
{
    void *library = dlopen(file, RTLD_NOW);
    void *(*allocate)(int) = (void *(*)(int))dlsym(library, name);
    for (int i = 0; i < times; i++) {
        void *block = allocate(1000);
        if (frees) free(block);
    }
    dlclose(library);
}
int main(void)
{
    use("./first.so", "leaks_", 5000, 0);
    use("./other.so", "honest", 50, 1);
    use("./first.so", "leaks_", 5000, 0);
    return 0;
}
"""


@pytest.mark.gate
def test_code_that_was_unloaded_keeps_its_name(run_heapfit: Heapfit, tmp_path: Path) -> None:
    for file, name in (("first", "leaks_"), ("other", "honest")):
        (tmp_path / f"{file}.c").write_text(LIBRARY.format(name=name))
        command = ["cc", "-g", "-O1", "-shared", "-fPIC", "-o", f"{file}.so", f"{file}.c"]
        subprocess.run(command, check=True, cwd=tmp_path)
    (tmp_path / "host.c").write_text(HOST)
    subprocess.run(["cc", "-g", "-O1", "-o", "host", "host.c"], check=True, cwd=tmp_path)
    run_heapfit("record", "-o", "host.hft", "--sites", "16", "--", "./host", folder=tmp_path)
    answer = run_heapfit("profile", "--json", "host.hft", folder=tmp_path).stdout
    sites = json.loads(answer)["profile"]["sites"]["by_bytes"]
    found: Counter[str] = Counter()
    for each in sites:
        found[each["chain"][0].partition(" (")[0]] += each["amount"]["objects"]
    assert (found["leaks_"], found["honest"]) == (10000, 50)


_RUST = "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library"


def rust_chain(app: str | None) -> list[Frame]:
    """What a `Vec` has allocated, with symbols as they are; `app` is the program's source."""
    return [
        Frame(at, "/bin/app", symbols.demangled(symbol), file, 7 if file else None)
        for at, (symbol, file) in enumerate(
            (
                ("_RNvNtCslNYArtu3iFV_5alloc5alloc5alloc", f"{_RUST}/alloc/src/alloc.rs"),
                (
                    "_ZN9hashbrown3raw8RawTable17h0123456789abcdefE",
                    "/rust/deps/hashbrown-0.16.1/src/raw.rs",
                ),
                (
                    "_ZN5alloc3vec16Vec$LT$T$C$A$GT$4push17h0123456789abcdefE.llvm.12",
                    app and f"{_RUST}/alloc/src/vec/mod.rs",
                ),
                ("_RNvMs_NtCs1234_3app5cacheINtB4_5CachehE3add", app),
                ("_RNvXs_NtCs1234_3app5cacheNtB4_5CacheNtNtCs9_4core3fmt7Display3fmt", app),
                ("_ZN3app4main17h0123456789abcdefE", app),
                ("_ZN4core3ops8function6FnOnce9call_once17h0123456789abcdefE", None),
                ("_ZN3std3sys9backtrace28__rust_begin_short_backtrace17h0123456789abcdefE", None),
                ("_RNvNtCsjrHSEGnQ3l9_3std2rt19lang_start_internal", f"{_RUST}/std/src/rt.rs"),
                ("main", None),
                ("__libc_start_call_main", None),
                ("_start", None),
            )
        )
    ]


@pytest.mark.gate
@pytest.mark.parametrize("app", ["/src/app.rs", None])
def test_sites_of_rust_are_the_users_lines(app: str | None) -> None:
    """They were functions of alloc.rs, and mangled."""
    place = "app.rs:7, " if app else ""
    assert told(rust_chain(app)) == [
        f"app::cache::Cache::add ({place}alloc::vec::Vec::push)",
        "<app::cache::Cache as core::fmt::Display>::fmt" + (" (app.rs:7)" if app else ""),
        "app::main" + (" (app.rs:7)" if app else ""),
    ]


@pytest.mark.gate
def test_where_all_is_of_a_library_its_users_function_is_named() -> None:
    assert told(rust_chain(None)[:3]) == ["alloc::vec::Vec::push"]


@pytest.mark.gate
@pytest.mark.parametrize(
    ("file", "function", "is_own"),
    [
        ("/src/app/library/core/src/a.rs", "app_core::a", True),
        ("/build/rust/library/alloc/src/vec/mod.rs", "alloc::vec::Vec<app::T>::push", False),
        ("/root/lib/rustlib/src/rust/library/std/src/rt.rs", "<app::T as std::rt::X>::f", False),
    ],
)
def test_only_the_sources_of_rust_itself_are_its_libraries(
    file: str, function: str, is_own: bool
) -> None:
    frames = [Frame(1, "/bin/app", function, file, 7), Frame(2, "/bin/app", "app::f", "/a.rs", 9)]
    assert len(told(frames)) == 1 + is_own


@pytest.mark.gate
def test_namespaces_of_cpp_are_not_taken_for_libraries_of_rust() -> None:
    frames = [Frame(1, "/bin/x", "core::engine::run(int) const"), Frame(2, "/bin/x", "main")]
    assert told(frames) == ["core::engine::run", "main"]


@pytest.mark.gate
@pytest.mark.parametrize(
    ("outer", "library"),
    [
        (["start_thread", "__clone3"], "libc.so.6"),
        (["execute_native_thread_routine", "start_thread@@GLIBC_2.34", "clone"], "libc.so.6"),
        ([None, "start_thread", "clone3"], "libstdc++.so.6"),
        (["__libc_start_call_main", "__libc_start_main_alias_2", None], "app"),
    ],
)
def test_what_starts_a_program_or_a_thread_is_not_told(
    outer: list[str | None], library: str
) -> None:
    inner = [Frame(1, "/bin/app", "grow"), Frame(2, "/bin/app", "start_thread"),
             Frame(3, "/bin/app", "_start_all")]  # fmt: skip
    frames = [Frame(9, f"/lib/{library}", name, offset=9) for name in outer]
    assert told([*inner, *frames]) == ["grow", "start_thread", "_start_all"]
    assert told(frames)
