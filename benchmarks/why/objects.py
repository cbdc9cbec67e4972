"""Objects in Python's arenas."""

import sys

kept = [(f"name {i}", {"number": i}) for i in range(500_000)]
print("ready", flush=True)
sys.stdin.read()
