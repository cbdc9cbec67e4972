"""One sentence of advice for each section of a profile.

It names a feature of heapfit, or says that none is needed. A rule fires only on figures that are in
the profile, past a threshold that has a name and a reason; where the figures do not decide, the
sentence says what would. What the features do, and what they cost, is in docs/tuning.md,
docs/contexts.md and docs/pools.md. Within a section the first rule that fits decides.
"""

from __future__ import annotations

from collections.abc import Callable

from heapfit.profile.advice import calls, memory, placement
from heapfit.profile.advice.basis import Advice
from heapfit.profile.model import Profile

__all__ = ["Advice", "advice"]

_RULES: dict[str, Callable[[Profile, str], Advice]] = {
    "memory": memory.memory,
    "peak": memory.peak,
    "sizes": calls.sizes,
    "rounding": memory.rounding,
    "rate": calls.rate,
    "lifetimes": placement.lifetimes,
    "bursts": placement.bursts,
    "threads": placement.threads,
    "realloc": calls.realloc,
    "calloc": calls.calloc,
    "sites": placement.sites,
    "end": memory.end,
}


def advice(profile: Profile, trace: str = "TRACE") -> dict[str, Advice]:
    """Return the advice by section, in the order of the sections. `trace` is what commands name."""
    return {name: rule(profile, trace) for name, rule in _RULES.items()}
