/* A library that comes by dlopen, whose handlers therefore run around all others. */
#include "forking.h"

__attribute__((constructor)) static void start_workers(void)
{
    require(pthread_atfork(workers_join, workers_start, NULL) == 0, "no handlers");
    workers_start();
}
