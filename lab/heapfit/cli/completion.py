"""What a shell asks when somebody presses the tabulator, answered with the standard library alone.

The scripts of `heapfit --install-completion` call heapfit with `_HEAPFIT_COMPLETE` set, in Typer's
form. To ask each command's own module would take half a second; what they take is in
completion.json, which `scripts/update-docs reference` writes from them.
"""

import json
import os
import shlex
from functools import cache
from pathlib import Path
from typing import Any

_VARIABLE = "_HEAPFIT_COMPLETE"
_TABLE = Path(__file__).with_name("completion.json")


def completed() -> bool:
    """Print how the command line goes on when a shell asks; return whether one did."""
    instruction, _, shell = os.environ.get(_VARIABLE, "").partition("_")
    if instruction != "complete" or shell not in ("bash", "fish", "zsh"):
        return False
    if shell == "bash":
        print("\n".join(value for value, _ in _of_bash()))
        return True
    text = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    *before, last = [*_words(text)[1:], *([""] if text.endswith(" ") else [])] or [""]
    found = candidates(before, last)
    if shell == "zsh":
        print(_for_zsh(found))
    elif os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "get-args":
        print("\n".join(f"{value}\t{told}" if told else value for value, told in found))
    elif not found:
        raise SystemExit(1)  # fish completes the names of files then
    return True


def candidates(before: list[str], word: str) -> list[tuple[str, str]]:
    """Return what `word` may become behind the words `before`, each with what it is.

    >>> candidates(["compare", "--allocators"], "glibc,jem")
    [('glibc,jemalloc', '')]
    """
    if "--" in before:
        return []  # the user's own program
    table = _table()
    commands, name, value_of = table["commands"], "", None
    for each in before:
        options = commands[name]["options"]
        if value_of is not None:
            value_of = None
        elif each in options:
            value_of = options[each][0]
        elif f"{name} {each}".strip() in commands:
            name = f"{name} {each}".strip()
    if value_of is not None:
        return [(value, "") for value in _values(table["values"], value_of, word)]
    command = commands[name]
    found = [(option, told) for option, (_, told) in command["options"].items()]
    if not word.startswith("-"):
        found = [(sub, _brief(f"{name} {sub}".strip())) for sub in command["commands"]]
        found += [(value, "") for value in _values(table["values"], command["argument"], word)]
    return [(value, told) for value, told in found if value.startswith(word)]


def about(command: str) -> str:
    """Return the sentence that says what a command does."""
    told: str = _table()["commands"][command]["help"]
    return told


def _brief(command: str) -> str:
    """Return what stands before the first colon: a shell has one line for it."""
    return about(command).partition(": ")[0].removesuffix(".")


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def _values(known: dict[str, Any], kind: str, word: str) -> list[str]:
    """Return the values of a kind that begin as `word` does: `a|b`, a name of `known` or neither.

    `name,` is a list with commas, `name=` a name with a value.
    """
    if kind.endswith(","):
        head, comma, last = word.rpartition(",")
        taken = head.split(",")
        return [
            head + comma + value
            for value in known[kind[:-1]]
            if value.startswith(last) and value not in taken
        ]
    if kind.endswith("="):
        name, equals, _ = word.partition("=")
        settings = known[kind[:-1]]
        values = settings.get(name, []) if equals else [""]
        names = [name] if equals else settings
        return [full for n in names for v in values if (full := f"{n}={v}").startswith(word)]
    values = kind.split("|") if "|" in kind else known.get(kind, [])
    return [value for value in values if value.startswith(word)]


def _of_bash() -> list[tuple[str, str]]:
    """Return what bash asks for, which takes `=` for a word of its own."""
    words = _words(os.environ.get("COMP_WORDS", ""))
    number = int(os.environ.get("COMP_CWORD", "0"))
    before, word = words[1:number], words[number] if number < len(words) else ""
    assigned = ""
    if word == "=" and before:
        assigned, word = f"{before.pop()}=", ""
    elif before[-1:] == ["="] and len(before) > 1:
        assigned = f"{before[-2]}="
        del before[-2:]
    found = candidates(before, assigned + word)
    return [(value.removeprefix(assigned), told) for value, told in found]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark that is still open
        return text.split()


def _for_zsh(found: list[tuple[str, str]]) -> str:
    """Return the command that zsh evaluates."""
    if not found:
        return "_files"

    def quoted(text: str) -> str:
        for mark, safe in (('"', '""'), ("'", "''"), ("$", r"\$"), ("`", r"\`"), (":", r"\\:")):
            text = text.replace(mark, safe)
        return f'"{text}"'

    lines = [quoted(value) + (f":{quoted(told)}" if told else "") for value, told in found]
    return "_arguments '*: :((" + "\n".join(lines) + "))'"
