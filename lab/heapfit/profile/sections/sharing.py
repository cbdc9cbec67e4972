"""Sharing: which thread frees what which has allocated."""

from collections import Counter

from heapfit.profile.model import Flow, Sharing
from heapfit.profile.sections.sizes import thread_names
from heapfit.profile.tally import ADDENDS, Key, Tally, amount, grouped, share
from heapfit.profile.trace import OTHERS, Trace

_WIDTH = 2 * ADDENDS  # all that was freed, and what another thread freed
THREADS_SHOWN = 24


def count(trace: Trace, tally: Tally) -> None:
    """Count freed objects by both threads."""
    rows = trace.query(
        f"SELECT born_thread, died_thread, {trace.amount()}, {trace.amount('remote')} "
        "FROM object WHERE died_ns IS NOT NULL GROUP BY ALL"
    )
    for born, died, *row in rows:
        freeing = OTHERS if died is None else died
        tally.add("flow", (trace.thread_key(born), trace.thread_key(freeing)), map(int, row))


def finish(tally: Tally) -> Sharing:
    """Return the flow between the threads that take part most, and how much crosses over."""
    flow = tally.sums["flow"]
    whole = tally.total("flow", _WIDTH)
    threads, shown = _shown(tally)
    between = grouped(flow, lambda born, died: (shown[born], shown[died]), _WIDTH)
    cells = sorted(between.items(), key=lambda item: (-item[1][0], item[0]))
    return Sharing(
        threads=threads,
        flow=[Flow(born=born, died=died, amount=amount(row)) for (born, died), row in cells],
        freed=amount(whole),
        remote=amount(whole, ADDENDS),
        remote_share=share(whole[ADDENDS], whole[0]),
        remote_bytes_share=share(whole[ADDENDS + 1], whole[1]),
    )


def _shown(tally: Tally) -> tuple[list[str], dict[Key, int]]:
    """Return the names of the threads in the matrix, and by each thread's key its place there."""
    flow = tally.sums["flow"]
    weight: Counter[Key] = Counter()
    for (born, died), row in flow.items():
        weight[born] += row[0]
        weight[died] += row[0]
    leading = sorted(weight, key=lambda key: (-weight[key], key))
    names = thread_names(tally)
    if len(leading) <= THREADS_SHOWN:
        return [names[key] for key in leading], {key: i for i, key in enumerate(leading)}
    last = THREADS_SHOWN - 1
    places = {key: min(i, last) for i, key in enumerate(leading)}
    return [*(names[key] for key in leading[:last]), "others"], places
