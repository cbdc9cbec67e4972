# Compiles two C files at several levels, links them, runs the result.
# The object files stay and are compared byte for byte.
set -eu
source=$1

for level in -O0 -O2 -O3; do
    gcc -std=c17 -Wall -Wextra "$level" -g -c "$source/build/words.c" -o "words$level.o"
    gcc -std=c17 -Wall -Wextra "$level" -g -c "$source/build/main.c" -o "main$level.o"
    gcc "words$level.o" "main$level.o" -o "count$level"
    "./count$level" 3 the cat and the dog and the bird
done
gcc -std=c17 -O2 -flto -shared -fPIC "$source/build/words.c" -o libwords.so
