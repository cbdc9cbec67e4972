"""An option means the same in every command that has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from heapfit.cli.commands import _root

# Where a result goes to: a file of one command, a folder of the other.
PLACES = {"FILE", "DIR"}


def options(command: Any) -> Iterator[Any]:
    context = command.make_context("", [], resilient_parsing=True)
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from options(command.get_command(context, name))
    else:
        yield from (each for each in command.params if each.param_type_name == "option")


def test_the_place_of_a_result_is_out_in_every_command_and_o_is_short_for_it() -> None:
    every = list(options(typer.main.get_command(_root)))
    places = [each for each in every if {"-o", "--out"} & set(each.opts)]
    assert len(places) > 8
    assert all(set(each.opts) == {"-o", "--out"} for each in places)
    assert {each.metavar for each in places} == PLACES
