"""The explanation that libheapfit-pools.so writes, as records. Sizes are bytes.

The file is JSON, written by `allocator/api/explain.c` to the path that the environment variable
names; `%p` in it stands for the process's number, since a program may start others.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from heapfit.errors import UsageError

FORMAT = "heapfit-pools/1"
VARIABLE = "HEAPFIT_POOLS_EXPLAIN"


def _as_number(value: Any) -> Any:
    return int(value, 0) if isinstance(value, str) else value


# A number; as text, hexadecimal ones are read too.
Address = Annotated[int, BeforeValidator(_as_number)]


class _Part(BaseModel):
    """Base of what the library writes: a newer one may say more than is understood here."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Module(_Part):
    """A mapped file. What it calls an address is the address in the process less `base`."""

    path: str
    base: Address
    end: Address


class SizeCount(_Part):
    size: int
    objects: int


class Group(_Part):
    """The objects of one chain of calls, while they were watched; the shares are of samples."""

    id: int
    chain: list[Address]  # return addresses, malloc's caller first; a long chain is cut off
    length: int
    complete: bool = True  # the chain ended where the object is used, and not for want of knowledge
    objects: int
    bytes: int = 0
    sizes: list[SizeCount] = []
    state: Literal["watched", "ordinary", "pooled", "mixed", "merged"]
    merged_into: int | None = None
    merged_by: str | None = None
    reason: str = ""
    threshold: str | None = None  # that left it out
    pool: int | None = None
    freed_share: float | None = None  # free again when the group was judged
    class_share: float | None = None  # of the live neighbours in memory, those of its own
    linked_share: float | None = None  # linked with an object beside, of the group with most such


class Edge(_Part):
    """Objects of `from_group` that hold, at `offset`, the address of one of `to_group`; without an
    offset, such that the same object of a third group points to one of each."""

    from_group: int = Field(alias="from")  # a word of Python's
    to_group: int = Field(alias="to")
    offset: int | None = None
    count: int
    adjacent: int = 0  # of them, those whose objects were allocated one after the other


class Pool(_Part):
    id: int
    kind: str  # one-size, mixed
    block_size: int | None = None
    objects: int = 0  # live, as `bytes`
    bytes: int = 0
    footprint: int = 0  # what the pool takes for them


class Explanation(_Part):
    """One process's."""

    format: Literal["heapfit-pools/1"]
    version: str
    pid: int
    program: str
    settings: dict[str, str | int | float | bool] = {}
    modules: list[Module] = []
    groups: list[Group] = []
    edges: list[Edge] = []
    siblings: list[Edge] = []
    pools: list[Pool] = []
    counters: dict[str, float | dict[str, float]] = {}

    def root(self, group: Group) -> Group:
        """Return the group that `group` ended up in by merging; itself if in none."""
        by_id = {each.id: each for each in self.groups}
        seen = {group.id}
        while group.merged_into in by_id and group.merged_into not in seen:
            group = by_id[group.merged_into]
            seen.add(group.id)
        return group

    def merged_share(self) -> float:
        """Return what part of the bytes in pools is in those of merged groups (0 to 1)."""
        merged = {self.root(each).pool for each in self.groups if each.state == "merged"}
        total = sum(pool.bytes for pool in self.pools)
        return sum(pool.bytes for pool in self.pools if pool.id in merged) / total if total else 0.0

    def counter(self, name: str) -> float:
        """Return a counter that is a plain number; 0 if the library does not have it."""
        value = self.counters.get(name, 0.0)
        return 0.0 if isinstance(value, dict) else value

    def fallbacks(self) -> dict[str, float]:
        """Return how many allocations were not understood, by reason."""
        found = self.counters.get("fallback", {})
        return {k: v for k, v in found.items() if v} if isinstance(found, dict) else {}


def read(path: Path) -> Explanation:
    """Return the explanation in the file; UsageError for another file, OSError for none."""
    try:
        return Explanation.model_validate_json(path.read_bytes())
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        what = f"{path} is no explanation of this version's ({FORMAT})"
        raise UsageError(f"{what}: {where}" if where else what) from error


def main_process(explanations: Sequence[Explanation]) -> Explanation:
    """Return that of the process whose groups have the most objects, of several."""
    return max(explanations, key=lambda each: sum(group.objects for group in each.groups))
