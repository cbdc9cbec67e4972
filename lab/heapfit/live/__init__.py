"""Running processes: what their heaps hold, seen and steered from outside.

client      asks one process, over the socket that heapfit opens in it with `control:on`
processes   which processes there are to ask, and why one cannot be asked
ledger      what its resident memory is there for
profile     who asked for what lives
pinners     which call sites hold free memory, in sentences
snapshot    everything that can be known of one process at one moment, and between two
figures     how that is written for people
top         the terminal's full-screen view
"""

from heapfit.live.client import Client, Refused, all_clients, some_clients
from heapfit.live.ledger import Ledger
from heapfit.live.processes import NotListening, listening
from heapfit.live.profile import LiveProfile
from heapfit.live.snapshot import Rates, Snapshot, rates_between, take
