"""Print the live heap profile of a process, and which call sites pin its free memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.padding import Padding
from rich.text import Text

from heapfit import text
from heapfit.cli.output import results, table
from heapfit.live import LiveProfile, figures
from heapfit.live.profile import OLD_S, Estimate, Site
from heapfit.text import visible

# As many sites as are worth a look; --json has them all.
_MOST_SITES = 16
_MOST_PINNERS = 3
_MINUTE_S = 60
_NUMBERS = ("live", "95 % interval", "blocks", "pins", "samples")
_GAP = 2  # between columns
# With less room beside the numbers a call site has a line of its own.
_LEAST_FOR_SITES = 40


def show_profile(profile: LiveProfile) -> None:
    """Print the sites with most live memory."""
    sites = profile.largest()
    rows = [_numbers(each) for each in sites[:_MOST_SITES]]
    names = [visible(each.name) for each in sites[:_MOST_SITES]]
    widths = [max(map(cell_len, column)) for column in zip(_NUMBERS, *rows, strict=True)]
    room = results.width - sum(widths) - _GAP * len(widths)
    if room >= min(_LEAST_FOR_SITES, max(map(cell_len, names), default=0)):
        beside = table(*_NUMBERS, "call site", right=_NUMBERS)
        for numbers, name in zip(rows, names, strict=True):
            beside.add_row(*numbers, name)
        results.print(beside)
    else:
        results.print(Text(_line(_NUMBERS, widths), style="bold"))
        for numbers, name in zip(rows, names, strict=True):
            results.print(_line(numbers, widths), Padding(Text(name), (0, 0, 0, _GAP)))
    if len(sites) > _MOST_SITES:
        results.print(f"… and {len(sites) - _MOST_SITES} more", style="dim")
    _say_what_is_missing(profile)


def _numbers(site: Site) -> tuple[str, ...]:
    """What stands under _NUMBERS."""
    size, pinned = site.bytes, site.pinned
    return (
        text.size(size.value),
        _interval(size),
        text.count(site.blocks.value),
        text.size(pinned.value),
        str(len(site.samples)),
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return (" " * _GAP).join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def show_pinners(profile: LiveProfile, pid: int) -> None:
    """Say in sentences whose objects hold free memory of a process."""
    pinners = profile.pinners()
    if pinners:
        results.print()
    for each in pinners[:_MOST_PINNERS]:
        results.print(visible(pinner_in_words(each)))
    if not profile.sites and not profile.mean:
        results.print(
            "\nTo learn whose objects pin free memory, start sampling the objects allocated "
            f"from now on: heapfit ctl {pid} set sample=512k",
            style="dim",
        )


def pinner_in_words(site: Site) -> str:
    """Return what a site's objects hold, how sure that is, and how old they are."""
    pinned = site.pinned
    return (
        f"About {text.size(pinned.value)} of free memory ({_interval(pinned)}) is pinned by "
        f"{text.size(site.bytes.value)} of objects that {site.words[0]} allocates; "
        f"{figures.share(site.old_share)} of them are older than {OLD_S / _MINUTE_S:.0f} "
        "minutes."
    )


def described_profile(profile: LiveProfile) -> dict[str, Any]:
    """Return it as plain data, the sites with most live memory first."""
    return {
        "mean": profile.mean,
        "missed": profile.missed,
        "complete": profile.complete,
        "sites": [described_site(each) for each in profile.largest()],
    }


def described_site(site: Site) -> dict[str, Any]:
    """Return what is known of one site."""
    return {
        "calls": site.words,
        "samples": len(site.samples),
        "bytes": _described(site.bytes),
        "blocks": _described(site.blocks),
        "pinned": _described(site.pinned),
        "older_than_ten_minutes": site.old_share,
        "median_age_s": site.median_age_s,
    }


def _described(estimate: Estimate) -> dict[str, int]:
    return {
        "estimate": round(estimate.value),
        "low": round(estimate.low),
        "high": round(estimate.high),
    }


def _interval(estimate: Estimate) -> str:
    return f"{text.size(estimate.low)} to {text.size(estimate.high)}"


def _say_what_is_missing(profile: LiveProfile) -> None:
    if profile.missed:
        results.print(
            f"{profile.missed:,} objects were chosen, but there was no room to remember them: "
            "the figures are too low; sample fewer objects.",
        )
    if not profile.complete:
        results.print("This is incomplete: the process has no memory for looking further.")
