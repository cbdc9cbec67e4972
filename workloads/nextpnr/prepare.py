"""Makes the net list of `nextpnr`: Yosys synthesises the circuit of the workload `yosys`, smaller.

Usage: prepare.py DATA_FOLDER
"""

import subprocess
import sys
from pathlib import Path

DESIGN = Path(__file__).parent.parent / "yosys" / "design.v"
CORES = 1


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    script = f"read_verilog -D CORES={CORES} {DESIGN}; synth_ice40 -top top; setattr -unset src"
    subprocess.run(
        ["yosys", "-q", "-p", f"{script}; write_json {folder / 'net-list.json'}"], check=True
    )


if __name__ == "__main__":
    main()
