"""One run of a study's program under the recorder, whose files are kept."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from heapfit.record import VARIANT, examine
from heapfit.records import Study
from heapfit.trial.attempt import Attempt
from heapfit.trial.own_libraries import RECORDINGS
from heapfit.trial.source import Source


def recorded_run(
    study: Study,
    file: Path,
    data: Path | None,
    settings: Mapping[str, str],
    sources: Sequence[type[Source]] = (),
    *,
    all_processes: bool = False,
) -> tuple[list[Path], Sequence[Source]]:
    """Run the study's baseline once with the recorder's `settings`; return the recordings and what
    the `sources` have seen.

    `file` is of the process that recorded most; with `all_processes`, those of the others are
    beside it as FILE.1, FILE.2 and so on. Raises Rejected where the run failed.
    """
    plain = study.allocators[0]
    recorded = plain.model_copy(
        update={"name": VARIANT, "variant_of": plain, "record": dict(settings)}
    )
    recording = study.model_copy(update={"allocators": [plain, recorded]})
    planned = study.plan[0].model_copy(update={"allocator": VARIANT})
    with tempfile.TemporaryDirectory(dir=file.parent, prefix="recording-") as aside:
        attempt = Attempt(recording, planned, sources, timeout_s=study.timeout_s,
                          folder=Path(aside), data=data)  # fmt: skip
        with closing(attempt):
            attempt.run()
        made = Path(aside) / RECORDINGS
        written = sorted(made.iterdir() if made.exists() else [], key=_events)
        kept = []
        for number, each in enumerate(reversed(written) if all_processes else written[-1:]):
            kept.append(each.replace(f"{file}.{number}" if number else file))
    return kept, attempt.sources


def _events(file: Path) -> int:
    return examine(file).events
