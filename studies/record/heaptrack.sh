#!/bin/sh
# Runs a program under heaptrack's library as `heaptrack --raw` does: what it records goes through zstd
# into FOLDER. This script does not stay in between, so that signals and exit code are the program's.
#
#   heaptrack.sh FOLDER PROGRAM [ARGUMENT]...

set -eu
folder=$1
shift

# heaptrack looks at one process. Under gcc's driver that is the compiler, which the driver starts so.
if [ "$1" = g++ ]; then
  shift
  exec g++ -wrapper "sh,$0,$folder" "$@"
fi

pipe=$folder/heaptrack.fifo
mkfifo "$pipe"
zstd -q -c <"$pipe" >"$folder/heaptrack.raw.zst" &
library=/usr/lib/heaptrack/libheaptrack_preload.so
export LD_PRELOAD="$library${LD_PRELOAD:+:$LD_PRELOAD}" DUMP_HEAPTRACK_OUTPUT="$pipe"
exec "$@"
