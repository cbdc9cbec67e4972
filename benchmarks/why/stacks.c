/* Many threads, each of which was deep in a recursion once. */
#include "threads.h"

enum { THREADS = 64, DEPTH = 48 };

static int deep(int calls)
{
    volatile char room[64 * KIB];
    memset((char *)room, calls, sizeof room);
    return calls > 1 ? deep(calls - 1) + room[5] : room[9];
}

static void *work(void *unused)
{
    deep(DEPTH);
    stay();
    return unused;
}

int main(void)
{
    run_threads(THREADS, work);
}
