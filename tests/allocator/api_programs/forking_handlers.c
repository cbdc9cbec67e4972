#include "forking.h"

struct forking_handlers forking_handlers;

static void prepare(void)
{
    if (forking_handlers.prepare != NULL) forking_handlers.prepare();
}

static void parent(void)
{
    if (forking_handlers.parent != NULL) forking_handlers.parent();
}

static void child(void)
{
    if (forking_handlers.child != NULL) forking_handlers.child();
}

__attribute__((constructor)) static void begin(void)
{
    pthread_atfork(prepare, parent, child);
}
