"""The statistics of a study: medians with their intervals, verdicts, and the analysis of designed
studies as papers make it.

`observations.py` reads the trials, `verdict.py` compares treatments, `summary.py` collects what a
report shows. `analyse.py` leads the analysis of variance, which no verdict rests on.
"""

from heapfit.statistics.analyse import analyse, analyse_all
from heapfit.statistics.median import median_interval
from heapfit.statistics.observations import Readings
from heapfit.statistics.peers import compare_with_peers
from heapfit.statistics.summary import analysed_metrics, precision_of, summarise
from heapfit.statistics.time_metric import read
