"""`heapfit why`: what holds a process's resident memory, as far as it can be seen from outside.

It reads /proc and, where heapfit in the process listens, asks that about the heap. Nothing is
loaded into the process, and it does not stand still. `maps` reads its mappings, `program` says what
runs in it, `causes` puts each mapping under a cause, and `findings` says what that means and what
to do next.
"""

from heapfit.why.findings import Finding, Growth, findings, grown
from heapfit.why.reading import Reading, read

__all__ = ["Finding", "Growth", "Reading", "findings", "grown", "read"]
