"""`python -m heapfit`: the same as the `heapfit` command."""

from heapfit.cli import main

if __name__ == "__main__":
    main()
