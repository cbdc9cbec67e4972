"""Stacks as speedscope reads them: JSON, with one profile by bytes and one by blocks.

https://www.speedscope.app/file-format-schema.json
"""

import json
from typing import Any

import heapfit
from heapfit.profile.flames.formats import Unit, What
from heapfit.profile.flames.stacks import Stacks, value
from heapfit.profile.trace import Summary

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = {Unit.BYTES: "bytes", Unit.BLOCKS: "none"}


def write(stacks: Stacks, summary: Summary, what: What, unit: Unit) -> bytes:
    """Return the file; that `unit` is shown at first."""
    frames: dict[tuple[str, str | None], int] = {}
    known = {
        site: amounts
        for site, amounts in stacks.amounts.items()
        if value(amounts, what, Unit.BLOCKS)
    }
    samples = [
        [frames.setdefault((name, call.file), len(frames)) for name, call in stacks.frames(site)]
        for site in known
    ]
    profiles = [
        _profile(
            f"{what}, {each}",
            _UNITS[each],
            samples,
            [value(amounts, what, each) for amounts in known.values()],
        )
        for each in Unit
    ]
    made = {
        "$schema": _SCHEMA,
        "exporter": f"heapfit {heapfit.__version__}",
        "name": summary.file,
        "activeProfileIndex": list(Unit).index(unit),
        "shared": {
            "frames": [{"name": name} | ({"file": file} if file else {}) for name, file in frames]
        },
        "profiles": profiles,
    }
    return json.dumps(made, separators=(",", ":")).encode()


def _profile(name: str, unit: str, samples: list[list[int]], weights: list[int]) -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": name,
        "unit": unit,
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
