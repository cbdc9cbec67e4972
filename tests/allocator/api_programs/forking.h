/* What forking.c is made of. */
#ifndef FORKING_H
#define FORKING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* forking_handlers.c, a library that forking.c is linked with. Its constructor registers handlers of fork, which call these;
 * so early that they run inside those of a malloc that is preloaded. */
struct forking_handlers {
    void (*prepare)(void), (*parent)(void), (*child)(void);
};

extern struct forking_handlers forking_handlers;

/* forking_workers.c, which the plugin has, too. */

/* Ends the program when it does not hold. */
void require(bool holds, const char *what);

void start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Allocates and frees so many objects, of all kinds: blocks, spans of blocks, large objects. What it leaves it has
 * checked. */
void churn(uint32_t seed, unsigned steps);

/* Threads that do so, until they are joined. */
void workers_start(void);
void workers_join(void);

#endif
