"""What differs between two results, or two recordings, that were made apart.

Nothing is inferred here. A figure of one run is set beside that of another only where it is the
program's own and not the machine's; of times, what is set side by side are the ratios within each
run. `of_studies` and `of_recordings` make a `Diff`, and `shown` lays it out.
"""

from heapfit.diff.model import Change, Diff
from heapfit.diff.recordings import of_recordings, of_tallies
from heapfit.diff.shown import markdown, show, tables
from heapfit.diff.studies import of_studies
