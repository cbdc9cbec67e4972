"""Manual pages of heapfit's commands, in roff, from what their --help is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from heapfit.cli.commands import reflowed

LINE_MAX = 100

_USUAL = (
    "0 when it is done, 1 when the work failed, 2 when the command line is wrong or names a file "
    "that is not there, 130 when Ctrl-C has ended it."
)
_DECIDES = _USUAL.replace("1 when the work failed", "4 when the work failed")
_CANNOT_START = "126 when the program cannot be run, 127 when there is none of that name."
_OF_PROGRAM = (
    "That of the program; a signal that ends it ends heapfit, too. Before the program runs: 1 when "
    "that cannot be prepared, 2 when the command line is wrong, "
)
# By the command's name, where it is not the usual one alone.
_EXIT_STATUS = {
    "heapfit": f"{_USUAL} Where a command has others, its own page says so.",
    "heapfit compare": f"{_USUAL} With --fail-if: 1 when a bound is shown to be exceeded, 3 "
    "when inconclusive, and 4 when the work failed.",
    "heapfit fit": f"{_DECIDES} 1 when nothing meets a limit, or everything that is better is "
    "shown to break a bound of --keep, 3 when inconclusive.",
    "heapfit check": f"{_DECIDES} 1 when a figure is shown to have grown, 3 when inconclusive, "
    f"{_CANNOT_START}",
    "heapfit run": _OF_PROGRAM + _CANNOT_START,
    "heapfit record": _OF_PROGRAM + _CANNOT_START,
    "heapfit profile": f"{_USUAL} With -- CMD: {_CANNOT_START}",
    "heapfit pools": f"{_USUAL} With -- CMD: {_CANNOT_START}",
}


def man_pages(root: Any, commands: dict[str, Any], version: str) -> dict[str, str]:
    """Return the page of heapfit itself and that of each command, by file name.

    `commands` are by full name, those of a group after it; a group's page tells of them too.
    """
    tops = {name: command for name, command in commands.items() if len(name.split()) == 2}
    pages = {"heapfit.1": _root_page(root, tops, version)}
    for name, command in tops.items():
        own = {sub: each for sub, each in commands.items() if sub.startswith(f"{name} ")}
        pages[f"{_title(name)}.1"] = _command_page(name, command, own, version)
    return pages


def _root_page(root: Any, commands: dict[str, Any], version: str) -> str:
    lines = [*_head("heapfit", root, version), ".SH COMMANDS"]
    for name, command in commands.items():
        lines += [".TP", f".BR {_title(name)} (1)", _text(_summary(command))]
    lines += [".SH OPTIONS", *_options(root), *_tail("heapfit", root)]
    lines += [".SH SEE ALSO", ".BR heapfit (3),", ".BR heapfit-control (7),"]
    return _joined([*lines, ".BR heapfit-record (7)"])


def _command_page(name: str, command: Any, own: dict[str, Any], version: str) -> str:
    lines = [*_head(name, command, version), *_paragraphs(command)]
    if command.params:
        lines += [".SH OPTIONS", *_options(command)]
    if own:
        lines.append(".SH COMMANDS")
    for sub, each in own.items():
        lines += [f'.SS "{_text(_synopsis(sub, each))}"', *_paragraphs(each), *_options(each)]
        lines += _example(each)
    return _joined([*lines, *_tail(name, command), ".SH SEE ALSO", ".BR heapfit (1)"])


def _head(name: str, command: Any, version: str) -> list[str]:
    title = _title(name)
    return [
        f'.\\" Written by scripts/update-docs from what {name} --help is made of.',
        f'.TH {title.upper()} 1 "" "heapfit {version}" "User commands"',
        ".SH NAME",
        f"{_text(title)} \\- {_text(_summary(command))}",
        ".SH SYNOPSIS",
        ".nf",
        _text(_synopsis(name, command)),
        ".fi",
        *([".SH DESCRIPTION"] if name != "heapfit" else []),
    ]


def _tail(name: str, command: Any) -> list[str]:
    lines = [".SH EXAMPLES", *_example(command)] if command.epilog else []
    return [*lines, ".SH EXIT STATUS", _text(_EXIT_STATUS.get(name, _USUAL))]


def _title(name: str) -> str:
    return name.replace(" ", "-")


def _summary(command: Any) -> str:
    """Return the first sentence of a command's help, in the form of a page's NAME."""
    first = re.split(r"[.:](?=\s|$)", command.help.strip())[0]
    return " ".join(first.split())


def _synopsis(name: str, command: Any) -> str:
    words = [name]
    if getattr(command, "commands", None) is not None or name == "heapfit":
        words.append("COMMAND ...")
    if any(each.param_type_name == "option" for each in command.params):
        words.append("[OPTION]...")
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    words += [each.metavar if each.required else f"[{each.metavar}]" for each in arguments]
    return " ".join([*words, *command.options_metavar.split()[1:]])


def _paragraphs(command: Any) -> Iterator[str]:
    for paragraph in reflowed(command.help).split("\n\n"):
        first, *items = map(_text, paragraph.splitlines())
        yield from (".P", first)
        for each in items:
            yield from (".br", each)


def _options(command: Any) -> Iterator[str]:
    for each in command.params:
        yield ".TP"
        names = ", ".join(f"\\fB{_text(name)}\\fP" for name in each.opts)
        is_option = each.param_type_name == "option"
        value = each.metavar if not getattr(each, "is_flag", False) else None
        yield " ".join(
            [*([names] if is_option else []), *([f"\\fI{_text(value)}\\fP"] if value else [])]
        )
        default = "" if each.default in (None, False) else f" The default is {each.default}."
        yield _text(f"{each.help}{default}")


def _example(command: Any) -> list[str]:
    if not command.epilog:
        return []
    example = command.epilog.removeprefix("Example:").strip().replace("\n\n", "\n")
    return [".P", ".EX", *map(_text, example.splitlines()), ".EE"]


def _text(words: str) -> str:
    """Return words as roff takes them: no character of theirs means anything to it."""
    quoted = words.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return f"\\&{quoted}" if quoted.startswith((".", "'")) else quoted


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
