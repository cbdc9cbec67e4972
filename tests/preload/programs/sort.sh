# Coreutils' sort with several threads, in memory and with temporary files.
set -eu
mawk 'BEGIN {
    state = 20240229
    for (line = 0; line < 150000; line++) {
        state = (state * 16807) % 2147483647
        printf "%d\tname%06d\t%x\n", state % 100000, state % 150000, line * 7
    }
}' > lines

sort --parallel=4 --buffer-size=64M -k1,1n -k2,2 lines > by-number
sort --parallel=4 --buffer-size=2M --temporary-directory=. -k2,2 -k3,3 lines > by-name
sort --parallel=2 --unique -k1,1n lines | wc -l
sort --check -k1,1n -k2,2 by-number
sha256sum by-number by-name
tac by-name | sort --parallel=4 --random-source=lines --random-sort | wc -l
join -t '	' -1 1 -2 1 -o 1.2,2.3 by-number by-number 2>/dev/null | head -n 1000 | sha256sum
cut -f 2 by-name | uniq --count | sort -k1,1nr -k2 | head -n 3
