"""Makes the circuit of `graywolf`: standard cells, pads and the nets between them, by a fixed seed.

Random logic in the shape of a real one: most wires are short, as a gate's inputs come from gates
that were made shortly before it, every sixth cell is a flip-flop, and clock and reset reach the
flip-flops through buffers. Needs Python's standard library only; same input, same output.

Usage: prepare.py DATA_FOLDER
"""

import random
import sys
from dataclasses import dataclass
from pathlib import Path

SEED = 20240229
CELLS = 1500
INPUTS = 24
OUTPUTS = 24
FAN_OUT = 12  # of one buffer
NEAR = 30  # a gate's inputs are among so many cells before it, mostly

# In hundredths of a micron.
TRACK = 160
HEIGHT = 2000


@dataclass(frozen=True)
class Kind:
    """A kind of cell: its width in tracks and the names of its pins, the output last."""

    name: str
    tracks: int
    pins: tuple[str, ...]


GATES = (
    Kind("INV", 2, ("A", "Y")),
    Kind("NAND2", 3, ("A", "B", "Y")),
    Kind("NOR2", 3, ("A", "B", "Y")),
    Kind("AOI21", 4, ("A", "B", "C", "Y")),
    Kind("MUX2", 6, ("A", "B", "S", "Y")),
    Kind("XOR2", 7, ("A", "B", "Y")),
)
BUFFER = Kind("BUF", 3, ("A", "Y"))
FLIP_FLOP = Kind("DFF", 12, ("C", "R", "D", "Q"))

PARAMETERS = f"""\
RULES
    layer metal1 0.07 0.030 horizontal
    layer metal2 0.07 0.017 vertical
    layer metal3 0.07 0.006 horizontal
    via via12 metal1 metal2
    via via23 metal2 metal3
    width metal1 60
    width metal2 60
    width metal3 60
    width via12 60
    width via23 60
    spacing metal1 metal1 140
    spacing metal2 metal2 100
    spacing metal3 metal3 140
    spacing via12 via23 0
    overhang via12 metal1 8
    overhang via12 metal2 6
    overhang via23 metal2 8
    overhang via23 metal3 6
ENDRULES

*vertical_wire_weight : 1.0
*vertical_path_weight : 1.0
*padspacing : variable
*rowSep : 0.0 0
*track.pitch : {TRACK}
*graphics.wait : off
*last_chance.wait : off
*random.seed : 12345
TWMC*chip.aspect.ratio : 0.75
TWSC*feedThruWidth : {TRACK} layer 1
TWSC*do.global.route : on
TWSC*ignore_feeds : true
TWSC*call_row_evener : true
TWSC*even_rows_maximally : true
GENR*row_to_tile_spacing : 1
GENR*flip_alternate_rows : 1
"""


class Circuit:
    """Cells in the order in which they were made; a cell's net has the cell's number."""

    def __init__(self) -> None:
        self.cells: list[tuple[Kind, list[str]]] = []
        self.used: set[str] = set()

    def add(self, kind: Kind, inputs: list[str]) -> str:
        net = f"n{len(self.cells)}"
        self.cells.append((kind, [*inputs, net]))
        self.used.update(inputs)
        return net


def distributed(circuit: Circuit, root: str, times: int) -> list[str]:
    """The nets by which `root` reaches so many cells, each through a buffer of the last level."""
    sources = [root]
    while len(sources) * FAN_OUT < times:
        sources = [circuit.add(BUFFER, [net]) for net in sources for _ in range(FAN_OUT)]
    buffers = -(-times // FAN_OUT)
    return [circuit.add(BUFFER, [sources[n % len(sources)]]) for n in range(buffers)]


def random_circuit() -> Circuit:
    chance = random.Random(SEED)
    circuit = Circuit()
    flip_flops = CELLS // 6
    clocks = distributed(circuit, "clock", flip_flops)
    resets = distributed(circuit, "reset", flip_flops)
    signals = [f"in{n}" for n in range(INPUTS)]
    made = 0
    while len(circuit.cells) < CELLS:
        near = signals[-NEAR:] if chance.random() < 0.9 else signals
        if chance.randrange(6) == 0:
            part = made // FAN_OUT % len(clocks)
            inputs = [clocks[part], resets[part], chance.choice(near)]
            signals.append(circuit.add(FLIP_FLOP, inputs))
            made += 1
        else:
            kind = chance.choice(GATES)
            signals.append(circuit.add(kind, chance.sample(near, len(kind.pins) - 1)))
    return circuit


def cell_text(number: int, kind: Kind, nets: list[str]) -> str:
    half = kind.tracks * TRACK // 2
    lines = [
        f"cell {number} {kind.name}_{number}",
        f"left {-half} right {half} bottom {-HEIGHT // 2} top {HEIGHT // 2}",
    ]
    for track in range(kind.tracks):
        x = -half + TRACK // 2 + track * TRACK
        name = f"twfeed{track + 1}"
        lines.append(f"pin name {name} signal TW_PASS_THRU layer 1 {x} {-HEIGHT // 2}")
        lines.append(f"   equiv name {name} layer 1 {x} {HEIGHT // 2}")
    for place, (pin, net) in enumerate(zip(kind.pins, nets, strict=True)):
        x = -half + TRACK // 2 + place * (kind.tracks - 1) * TRACK // (len(nets) - 1)
        lines.append(f"pin name {pin} signal {net} layer 1 {x} {-400 + 200 * place}")
    return "\n".join(lines)


def pad_text(number: int, net: str) -> str:
    half = TRACK // 2
    return (
        f"pad {number} name pad_{net}\n"
        f"corners 4 {-half} -100 {-half} 100 {half} 100 {half} -100\n"
        f"pin name {net} signal {net} layer 1 0 0\n"
    )


def circuit_text(circuit: Circuit) -> str:
    nets = [f"n{n}" for n in range(len(circuit.cells))]
    # A net that nothing reads leaves the circuit, and the last of the others too.
    loose = [net for net in nets if net not in circuit.used]
    outputs = dict.fromkeys([*loose, *nets[-OUTPUTS:]])
    inputs = ["clock", "reset", *(f"in{n}" for n in range(INPUTS))]
    cells = [cell_text(n, kind, wired) for n, (kind, wired) in enumerate(circuit.cells)]
    pads = [pad_text(n, net) for n, net in enumerate([*inputs, *outputs], start=1)]
    return "\n".join([*cells, *pads])


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "circuit.cel").write_text(circuit_text(random_circuit()) + "\n", encoding="ascii")
    (folder / "circuit.par").write_text(PARAMETERS, encoding="ascii")


if __name__ == "__main__":
    main()
