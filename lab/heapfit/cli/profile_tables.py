"""Print the live heap profile of a process, and which call sites pin its free memory."""

from typing import Any

from heapfit import text
from heapfit.cli.output import print_table, results
from heapfit.live import LiveProfile, pinners
from heapfit.live.profile import Estimate, Site
from heapfit.text import visible

# As many sites as are worth a look; --json has them all.
_MOST_SITES = 16
_NUMBERS = ("live", "95 % interval", "blocks", "pins", "samples")
_WORTH_ASKING = 1 << 20  # bytes that are pinned


def show_profile(profile: LiveProfile) -> None:
    """Print the sites with most live memory."""
    sites = profile.largest()
    if not sites:
        results.print(
            "No sampled object is live. On average, heapfit samples one object in every "
            f"{text.size(profile.mean)} allocated; look again later."
        )
        _say_what_is_missing(profile)
        return
    total = text.size(sum(each.bytes.value for each in sites))
    results.print(
        f"{total} live, of objects allocated since the option sample was set. heapfit ctl PID "
        "ledger has older objects, too."
    )
    rows = [(*_numbers(each), visible(each.name)) for each in sites[:_MOST_SITES]]
    print_table((*_NUMBERS, "call site"), rows, right=_NUMBERS)
    if len(sites) > _MOST_SITES:
        results.print(f"… and {len(sites) - _MOST_SITES} more", style="dim")
    _say_what_is_missing(profile)


def _numbers(site: Site) -> tuple[str, ...]:
    """What stands under _NUMBERS."""
    size, pinned = site.bytes, site.pinned
    return (
        text.size(size.value),
        pinners.interval(size),
        text.count(round(site.blocks.value)),
        text.size(pinned.value),
        str(len(site.samples)),
    )


def show_pinners(profile: LiveProfile, pid: int, pinned: int) -> None:
    """Say in sentences whose objects hold free memory of a process, of which there are `pinned`
    bytes, or how to find out, if they are not few."""
    if pinned < _WORTH_ASKING:
        return
    sentences = pinners.told(profile, pinned)
    if sentences:
        results.print()
    for each in sentences:
        results.print(visible(each))
    step = pinners.next_step(profile, pid)
    if step is not None:
        results.print(f"\n{step[0]}", style="dim")
        results.print(f"→ {step[1]}", style="dim", soft_wrap=True)


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


def _say_what_is_missing(profile: LiveProfile) -> None:
    if profile.missed:
        results.print(
            f"{profile.missed:,} objects were chosen, but there was no room to remember them: "
            "the figures are too low; sample fewer objects.",
        )
    if not profile.complete:
        results.print("This is incomplete: the process has no memory for looking further.")
