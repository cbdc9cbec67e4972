"""The parts of benchmarks/accounts.py: what heapfit's account of memory is worth."""
