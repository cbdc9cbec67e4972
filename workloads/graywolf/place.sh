#!/bin/sh
# Places the circuit in the folder $1 in the folder $2 and prints where each cell and pad is.
set -eu
cp "$1/circuit.cel" "$1/circuit.par" "$2"
cd "$2"
graywolf -n circuit >log.txt 2>&1 || { cat log.txt >&2; exit 1; }
cat circuit.pl1
