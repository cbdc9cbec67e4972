/* Makes a plan of events that are written out, for tests of the replay alone:
 *
 *   replay_events [--one-thread] PLAN < EVENTS
 *
 * A line is `ns thread kind address old size alignment`, kinds as format.h numbers them. */
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    bool one_thread = argc == 3 && strcmp(argv[1], "--one-thread") == 0;
    struct plan_maker *maker = plan_create(argv[argc - 1], one_thread);
    struct plan_event event;
    unsigned kind, alignment;
    while (maker != NULL &&
           scanf("%" SCNu64 " %" SCNu64 " %" SCNu32 " %u %" SCNu64 " %" SCNu64 " %" SCNu64 " %u", &event.ns,
                 &event.lasted_ns, &event.thread, &kind, &event.address, &event.old, &event.size, &alignment) == 8) {
        event.kind = (uint8_t)kind;
        event.alignment = (uint8_t)alignment;
        if (!plan_add(maker, &event)) return EXIT_FAILURE;
    }
    struct plan_header header;
    return maker != NULL && plan_finish(maker, 0, &header) ? EXIT_SUCCESS : EXIT_FAILURE;
}
