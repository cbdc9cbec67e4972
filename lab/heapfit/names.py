"""Functions as people read them: short, and which of them only pass a call on.

The demangled names of C++ and Rust have every type in full. Between a program and `malloc` stand
functions of the allocator and of the standard library that its authors never wrote, and around
`main` those that start it. Exported files keep them.
"""

import re
from collections.abc import Sequence
from functools import cache

# What calls `main` or a thread's function: where it is the outermost call, ...
_OUTERMOST = re.compile(
    r"_start|_start_c|_*clone3?|start_thread|execute_native_thread_routine"
    r"|(?:.*\b)?core::ops::function::Fn.*::call\w*"
)
# ... and wherever it is. What is around it starts the program, too: C's `main` is around Rust's.
_START = re.compile(
    r"_*libc_start_|std::rt::lang_start"
    r"|std::sys\w*::.*::(?:__rust_begin_short_backtrace|thread_start)"
)

_ALLOCATORS = {
    *("malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "memalign", "valloc"),
    *("posix_memalign", "strdup", "strndup", "operator new", "operator new[]"),
}
# Names in the standard library that are its own: what calls an allocator, and reserved ones.
_INTERNAL = re.compile(
    r"^__gnu_cxx::|^std::(?:allocator|allocator_traits|construct_at)\b|^std::(?:.*::)?_[A-Z_]"
)
_RUST_CRATES = ("alloc", "core", "std", "hashbrown")
# What calls an allocator in them, and the symbols that it calls.
_RUST_INTERNAL = re.compile(
    r"(?:alloc::(?:alloc|raw_vec)|<alloc::alloc|hashbrown::raw|__rustc)::|__(?:rust|rdl|rg)_\w*alloc"
)
# The crate of a type or a trait, if it has one.
_RUST_CRATE = re.compile(r"\W*(?:(?:const|dyn|impl|mut) \W*)*(\w+)::")
_INLINE_NAMESPACES = re.compile(r"\b(std::)__(?:cxx11|1|debug)::")
# Versions, what the compiler calls the parts and copies that it makes of a function, and what Rust
# appends to each.
_PART = r"\.(?:cold|part|isra|constprop|lto_priv)(?:\.\d+)*"
_SUFFIX = re.compile(rf"(?:@+[\w.]+|{_PART}|\s*\[clone [^]]*\]|::h[0-9a-f]{{16}}$)+$")
_ABI = re.compile(r"\[abi:\w+\]")
_QUALIFIERS = re.compile(r"(?: const| volatile| &&?| noexcept)+$")
_REQUIRES = re.compile(r"(?<=\)) requires .*")
_GO_METHOD = ".(*"  # of a pointer's type: `http.(*conn).serve`
_ANONYMOUS = "(anonymous namespace)"
_OPERATOR = re.compile(r"\boperator(?:\(\)|<=>|<<=?|>>=?|[<>]=?|->\*?)")
# Where the part of a name begins that may have blanks: an operator's, a lambda's.
_WITH_BLANKS = re.compile(r"\boperator\b|\{")
_HIDDEN_ARGUMENTS = "<…>"


@cache
def passes_on(name: str) -> bool:
    """Tell whether a function, by its short name, is none that somebody looks for.

    >>> [passes_on(name) for name in ("std::vector<…>::_M_realloc_insert<…>", "operator new")]
    [True, True]
    >>> [passes_on(name) for name in ("std::vector<…>::push_back", "main")]
    [False, False]
    >>> [passes_on(name) for name in ("alloc::raw_vec::RawVec<…>::grow_one", "app::raw_vec::f")]
    [True, False]
    """
    return name in _ALLOCATORS or bool(_INTERNAL.search(name)) or bool(_RUST_INTERNAL.match(name))


def started(names: Sequence[str]) -> int:
    """Return how many of a chain's functions, by their short names and the innermost first, are
    not there only to start `main` or a thread.

    >>> started(["malloc", "work", "start_thread", "clone3"])
    2
    >>> started(["app::main", "std::rt::lang_start::{{closure}}", "main", "_start"])
    1
    """
    count = next((at for at, name in enumerate(names) if _START.match(name)), len(names))
    while count and _OUTERMOST.fullmatch(names[count - 1]):
        count -= 1
    return count


@cache
def is_of_rust(function: str) -> bool:
    """Tell whether a function is of Rust's own libraries, by its name: `<type as trait>::name` is
    if both are. Names of C++ end in parameters.

    >>> [is_of_rust(name) for name in ("<alloc::vec::Vec<app::T>>::push", "core::run(int) const")]
    [True, False]
    >>> is_of_rust("<app::T as core::fmt::Display>::fmt"), is_of_rust("<str>::trim")
    (False, True)
    """
    if _QUALIFIERS.sub("", _SUFFIX.sub("", function)).endswith(")"):
        return False
    types, name = _typed(function)
    found = map(_RUST_CRATE.match, types.split(" as ") if types else [name])
    crates = {each[1] if each else "" for each in found}
    return crates <= {*_RUST_CRATES, *([""] if types else [])}  # str and the like have none


@cache
def shortened(function: str) -> str:
    """Return a function's name without its result, its parameters and those of its templates.

    >>> shortened("void a::list<int, b<c> >::add<d>(d&&, int) const [clone .cold]")
    'a::list<…>::add<…>'
    >>> shortened("(anonymous namespace)::f(int)::{lambda(int)#1}::operator()(int) const")
    '(anonymous namespace)::f::{lambda(int)#1}::operator()'
    >>> shortened("operator new(unsigned long)"), shortened("pthread_create@GLIBC_2.2.5")
    ('operator new', 'pthread_create')
    >>> shortened("<app::List<u8>>::add::<app::Item<u8>>"), shortened("<[T] as app::Own<T>>::own")
    ('app::List<…>::add::<…>', '<[T] as app::Own<…>>::own')
    >>> shortened("<(A, B) as app::X>::y"), shortened("http.(*conn).serve")
    ('<(A, B) as app::X>::y', 'http.(*conn).serve')
    >>> shortened("f(int) requires C<int>")
    'f'
    """
    name = _REQUIRES.sub("", _ABI.sub("", _SUFFIX.sub("", function)))
    if not any(each in name for each in "<( ") or _GO_METHOD in name:
        return name
    if name.startswith("<"):
        types, rest = _typed(name)
        whole = f"<{types}>" if " as " in types else types
        return whole + _without_parameters(rest) if types else name
    bare = _QUALIFIERS.sub("", _INLINE_NAMESPACES.sub(r"\1", _without_parameters(name)))
    # The result stands before the last blank, but for those that are parts of the name.
    blanks = _WITH_BLANKS.search(bare)
    end = blanks.start() if blanks else None
    space = bare.replace(_ANONYMOUS, "x" * len(_ANONYMOUS)).rfind(" ", 0, end)
    return bare[space + 1 :] or function


def brief(function: str) -> str:
    """Return a function's short name without what stands for templates' arguments.

    >>> brief("void std::vector<int, std::allocator<int> >::_M_fill(unsigned long, int const&)")
    'std::vector::_M_fill'
    >>> brief("book::order::operator()(int) const"), brief("operator new(unsigned long)")
    ('book::order::operator()', 'operator new')
    >>> brief("parse.isra.0"), brief("f(int) [clone .cold]")
    ('parse', 'f')
    >>> brief("app::parse::<u8>"), brief("alloc::slice::<impl [T]>::to_vec")
    ('app::parse', 'alloc::slice::to_vec')
    """
    name = shortened(function).replace("::" + _HIDDEN_ARGUMENTS, "")
    return name.replace(_HIDDEN_ARGUMENTS, "").rstrip()


def _typed(name: str) -> tuple[str, str]:
    """Return the type that a name of Rust begins with, or `type as trait`, without its arguments,
    and what follows. Of another name, all of it follows.

    >>> _typed("<a::B<(c, d)> as e::F<g>>::h::<i>")
    ('a::B<…> as e::F<…>', '::h::<i>')
    >>> _typed("<<a::B<c> as d::E>::f as g::H>::i")
    ('<a::B<…> as d::E>::f as g::H', '::i')
    >>> _typed("<lambda(int)>"), _typed("main")
    (('', '<lambda(int)>'), ('', 'main'))
    """
    depth, starts = 0, [1]
    for at, character in enumerate(name if name.startswith("<") else ""):
        depth += (character == "<") - (character == ">" and name[at - 1] != "-")
        if depth == 1 and name.startswith(" as ", at):
            starts.append(at + len(" as "))
        if not depth:
            ends = [start - len(" as ") for start in starts[1:]]
            parts = [name[start:end] for start, end in zip(starts, [*ends, at], strict=True)]
            types = " as ".join(
                shortened(part) if part.startswith("<") else _without_parameters(part) or part
                for part in parts
            )
            return (types, name[at + 1 :]) if name.startswith("::", at + 1) else ("", name)
    return "", name


def _without_parameters(name: str) -> str:
    """Return what is not within brackets. What stands in braces, a lambda's, tells it apart."""
    kept: list[str] = []
    angles = rounds = braces = at = 0
    while at < len(name):
        outside = angles == rounds == 0
        operator = _OPERATOR.match(name, at) if outside else None
        if operator or (outside and name.startswith(_ANONYMOUS, at)):
            whole = operator.group() if operator else _ANONYMOUS
            kept.append(whole)
            at += len(whole)
            continue
        character = name[at]
        at += 1
        braces += (character == "{") - (character == "}")
        if braces or character == "}":
            kept.append(character if outside else "")
        elif character == "<":
            kept.append(_HIDDEN_ARGUMENTS if outside else "")
            angles += 1
        elif character == "(":
            rounds += 1
        elif character == ")" and rounds:
            rounds -= 1
        elif character == ">" and angles:
            angles -= name[at - 2] != "-"  # the arrow before a result
        elif outside:
            kept.append(character)
    return "".join(kept)
