# Compiles one C++ file full of templates, links it, runs the result.
# The object file stays and is compared byte for byte.
set -eu
g++ -std=c++20 -O1 -c "$1" -o ledger.o
g++ ledger.o -o ledger
./ledger
