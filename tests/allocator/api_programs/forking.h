/* What forking.c and bad_days.c are made of. */
#ifndef FORKING_H
#define FORKING_H

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* forking_handlers.c, a library that forking.c is linked with. Its constructor registers handlers of fork, which call these;
 * so early that they run inside those of a malloc that is preloaded. */
struct forking_handlers {
    void (*prepare)(void), (*parent)(void), (*child)(void);
};

extern struct forking_handlers forking_handlers;

/* forking_workers.c, which the plugin has, too. */

/* Ends the program when it does not hold. */
void require(bool holds, const char *what);

/* Waits for a child, which must have ended by itself. One that hangs is ended by its alarm. */
int exit_code_of(pid_t child);

void start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Allocates and frees so many objects, of all kinds: blocks, spans of blocks, large objects. What it leaves it has
 * checked. */
void churn(uint32_t seed, unsigned steps);

/* What threads that go on are told to end by; and a thread that churns until then, whose argument is its first seed. */
extern atomic_bool threads_stop;
void *churns(void *argument);

/* Threads that do so, until they are joined. */
void workers_start(void);
void workers_join(void);

#endif
