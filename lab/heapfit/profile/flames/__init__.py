"""Stacks of calls with what they have allocated: as other tools' files, and as flame graphs.

`stacks` counts them from the tables of a trace. `export` writes them as pprof, Perfetto, speedscope
and FlameGraph's scripts read them, a module for each; `tree` makes of them what the page draws.
"""
