"""What of this machine, or of a program, helps or spoils a measurement, and what to do about it.

Nothing is changed.
"""

from heapfit.doctor.checks import Finding, examine
from heapfit.doctor.program import examine as examine_program
from heapfit.doctor.program import examine_objects
