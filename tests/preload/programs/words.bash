# Bash as a programming language: arrays, maps, patterns, subshells, pipes and traps.
set -eu
declare -A count=()
state=20240229
next() { state=$(((state * 1103515245 + 12345) % 2147483648)); chance=$(((state >> 8) % $1)); }

words=()
for ((number = 0; number < 6000; number++)); do
    next 900
    words+=("word$chance")
    count[word$chance]=$((${count[word$chance]:-0} + 1))
done
echo "${#words[@]} words, ${#count[@]} different"

for word in "${!count[@]}"; do echo "${count[$word]} $word"; done | sort -k1,1nr -k2 | head -n 5

joined=$(IFS=,; echo "${words[*]}")
upper=${joined^^}
echo "${#joined} ${upper:100:40} ${joined//word1/W}" | sha256sum

for ((number = 0; number < 60; number++)); do
    result=$(echo "$number" | { read -r value; echo $((value * value)); })
    sums+=("$result")
done
echo "squares ${sums[*]: -3}"

while read -r first rest; do lines+=("$rest $first"); done < <(seq 1 2000 | paste - - - -)
printf '%s\n' "${lines[@]}" | sha256sum

for number in 1 2 3 4; do (sleep 0.0"$number"; exit "$number") & children+=($!); done
for child in "${children[@]}"; do
    if wait "$child"; then code=0; else code=$?; fi
    codes+=("$code")
done
echo "children ended with ${codes[*]}"

trap 'echo "trapped $?"' EXIT
eval "$(printf 'f%d() { echo "function %d"; }\n' 1 1 2 2 3 3)"
f1; f2; f3
(exit 0)
