# Compiles a C++ file full of templates and a C file with clang, links, and runs them.
# The object files stay and are compared byte for byte.
set -eu
clang++-16 -std=c++20 -O1 -c "$1/cc1plus/ledger.cc" -o ledger.o
clang++-16 ledger.o -o ledger
./ledger
clang-16 -std=c17 -O3 -g -c "$2/build/words.c" -o words.o
clang-16 -std=c17 -O3 -g -c "$2/build/main.c" -o main.o
clang-16 words.o main.o -o count
./count 3 the cat and the dog and the bird
