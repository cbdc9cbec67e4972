/* Stand-ins for what other files of this layer will do: no chain is known, so that all objects go to the ordinary heap but for
 * those of sites that a test has put into the table. */
#include "pools.h"

struct site pool_sites[SITES];

struct verdict chain_verdict(uintptr_t return_address)
{
    const struct site *site = site_home(return_address);
    if (atomic_load_explicit(&site->return_address, memory_order_acquire) != return_address) return (struct verdict){0};
    return verdict_of_word(atomic_load_explicit(&site->verdict, memory_order_acquire));
}

void chain_set_site(uintptr_t return_address, struct verdict verdict)
{
    struct site *site = site_home(return_address);
    uintptr_t there = atomic_load_explicit(&site->return_address, memory_order_acquire);
    if (there != 0 && there != return_address) return;
    atomic_store_explicit(&site->verdict, verdict_word(verdict), memory_order_release);
    atomic_store_explicit(&site->return_address, return_address, memory_order_release);
}

uint32_t chain_group(const struct frame *frame, size_t size)
{
    (void)size;
    chain_set_site(frame->return_address, (struct verdict){.kind = VERDICT_ORDINARY});
    return GROUP_NONE;
}

void chain_set_verdict(uint32_t group, struct verdict verdict)
{
    (void)group;
    (void)verdict;
}

void chain_forget(void)
{
}

void chain_fork_begin(void)
{
}

void chain_fork_end(void)
{
}

const char *const chain_fallback_names[FALLBACKS] = {"no_unwind", "no_code", "too_deep", "too_many_chains",
                                                     "too_many_groups", "stack"};

void chain_figures(struct chain_figures *figures)
{
    *figures = (struct chain_figures){0};
}
