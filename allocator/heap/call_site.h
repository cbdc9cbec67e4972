/* Call sites: who asked for an object, as the chain of callers that led there. One table for the process, bounded; a chain is in it
 * once, and is known by its number from then on.
 *
 * No lock: whoever finds a chain missing writes it where nobody looks yet, and publishes its number by one exchange in the table. So
 * a fork, a signal handler and a thread that ends need no care; of two that add the same chain at a time, one finds the other's.
 *
 * Chains have no end where a recursion goes deep. Once the table is nearly full, a new chain is known by its innermost caller alone,
 * of which a program has few; and past that, by nothing.
 */
#ifndef HEAPFIT_CALL_SITE_H
#define HEAPFIT_CALL_SITE_H

#include "../platform/trace.h"

/* Some 6 MiB when it is full. */
enum { CALL_SITES_MAX = 1 << 15, CALL_SITE_NONE = 0 };

/* The number of a chain, from 1 on; CALL_SITE_NONE: there is no room or no memory for it. May be called with a heap entered. */
uint32_t call_site_of(const struct trace *trace);
/* The chain of a number that call_site_of has returned. */
const struct trace *call_site_trace(uint32_t number);

#endif
