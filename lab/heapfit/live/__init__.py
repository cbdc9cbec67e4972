"""Running processes: what their heaps hold, seen and steered from outside.

client      asks one process, over the socket that heapfit opens in it with `control:on`
processes   which processes there are to ask, and why one cannot be asked
snapshot    everything that can be known of one process at one moment, and between two
figures     how that is written for people
openmetrics and for a scraper; `top`: the terminal's full-screen view
"""

from heapfit.live.client import Client, Refused, all_clients
from heapfit.live.processes import Gone, NotListening, Process, find, listening, present
from heapfit.live.snapshot import Rates, Snapshot, rates_between, take

__all__ = [
    "Client",
    "Gone",
    "NotListening",
    "Process",
    "Rates",
    "Refused",
    "Snapshot",
    "all_clients",
    "find",
    "listening",
    "present",
    "rates_between",
    "take",
]
