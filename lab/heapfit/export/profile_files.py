"""The live heap profile as a file for another tool: pprof's, or stacks a line each.

What is known is what lives: so a file has the live blocks and bytes alone, as they are estimated.
"""

import time
from pathlib import Path

from heapfit.host.proc import Process
from heapfit.live.profile import LiveProfile, Site
from heapfit.profile.flames import folded, pprof
from heapfit.profile.flames.formats import Unit, What
from heapfit.profile.flames.stacks import Amount, Call, Place, Stacks
from heapfit.profile.trace import Info, Summary
from heapfit.symbols import Files, Frame
from heapfit.trace.sites import Mapping

# Places of the files in the one that is made: where they lay may have become another's.
_ROOM = 1 << 40


def pprof_file(found: LiveProfile, process: Process) -> bytes:
    """Return the profile as pprof reads it: `inuse_objects` and `inuse_space`."""
    stacks, summary = _stacks(found, process)
    return pprof.write_live(stacks, summary)


def folded_file(found: LiveProfile, process: Process) -> bytes:
    """Return a line for each stack: its functions, the outermost first, and its live bytes."""
    stacks, summary = _stacks(found, process)
    return folded.write(stacks, summary, What.LIVE_AT_END, Unit.BYTES)


def _stacks(found: LiveProfile, process: Process) -> tuple[Stacks, Summary]:
    paths = sorted({path for site in found.sites for path, _ in site.calls if path})
    starts = {path: index * _ROOM for index, path in enumerate(paths, start=1)}
    stacks = Stacks({}, {})
    numbers: dict[tuple[int, tuple[str, int]], int] = {}
    for site in found.sites:
        number = _chain(stacks, numbers, site, starts)
        amount = Amount(round(site.blocks.value), round(site.bytes.value))
        before = stacks.amounts.get(number, (Amount(0, 0),))[0]
        amount = Amount(before.blocks + amount.blocks, before.bytes + amount.bytes)
        stacks.amounts[number] = (amount,) * len(What)
    files = Files(Path(f"/proc/{process.pid}/root"))
    mapped = [
        line
        for path, start in starts.items()
        for line in Mapping(start, start + _ROOM, 0, path, files.build_id(path)).lines()
    ]
    program = process.command[0] if process.command else process.name
    info = Info(program=program, started_unix_ns=time.time_ns(), sample=found.mean)
    return stacks, Summary(info=info, modules=mapped)


def _chain(
    stacks: Stacks,
    numbers: dict[tuple[int, tuple[str, int]], int],
    site: Site,
    starts: dict[str, int],
) -> int:
    """Return the number of the site's innermost call; a caller's is lower than its callee's."""
    number = 0
    for call, frames in zip(reversed(site.calls), reversed(site.places), strict=True):
        key = number, call
        if key not in numbers:
            numbers[key] = len(numbers) + 1
            stacks.places[numbers[key]] = _place(call, frames, starts)
            stacks.callers[numbers[key]] = number
        number = numbers[key]
    return number


def _place(call: tuple[str, int], frames: tuple[Frame, ...], starts: dict[str, int]) -> Place:
    path, address = call
    # One more, as a call returns to it.
    place = Place(starts.get(path, 0) + address + 1, path or None, address)
    # With a name, even if it is none, nobody looks for another in a file that is not where it says.
    named = [Call(each.function or place.name, each.file, each.line) for each in frames]
    return Place(place.address, place.module, place.offset, tuple(named))
