#!/bin/sh
# Starts redis-server on loopback port $1 with the scratch folder $2: nothing persistent, one
# thread, no time wasted on the machine.
#
# Debian links redis-server with jemalloc. Without a preloaded allocator that one would be measured
# under the name of the C library's, so here the C library itself is put first.
set -eu
if [ -z "${LD_PRELOAD:-}" ]; then
    export LD_PRELOAD=libc.so.6
fi
exec redis-server --bind 127.0.0.1 --port "$1" --dir "$2" \
    --save '' --appendonly no --daemonize no --loglevel warning --databases 1
