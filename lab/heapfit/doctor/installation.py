"""heapfit's own library and the allocators that it can be compared with."""

from __future__ import annotations

from heapfit import catalogue
from heapfit.doctor.finding import Finding
from heapfit.errors import HeapfitError


def examine() -> list[Finding]:
    """Return whether the library works here, and which other allocators are installed."""
    return [_library(), _allocators()]


def _library() -> Finding:
    try:
        installed = catalogue.resolve_allocators(["heapfit"])[0]
        catalogue.smoke_test(installed)
    except HeapfitError as error:
        return Finding(topic="heapfit's library", state="unusable", advice=str(error))
    return Finding(topic="heapfit's library", state=f"loads: {installed.library}")


def _allocators() -> Finding:
    entries = catalogue.load_allocators()
    missing = [name for name, entry in entries.items() if catalogue.find_installed(entry) is None]
    installed = [name for name in entries if name not in missing]
    absent = [name for name in missing if name != "heapfit"]
    return Finding(
        topic="allocators",
        state=f"installed: {', '.join(installed)}",
        advice=f"run: heapfit allocators install {' '.join(absent)}" if absent else "",
    )
