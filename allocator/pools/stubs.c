/* Stand-ins for what other files of this layer will do: no chain is known, so that all objects go to the ordinary heap but for
 * those of sites that a test has put into the table. */
#include "pools.h"

struct verdict site_verdict(uintptr_t return_address)
{
    (void)return_address;
    return (struct verdict){.kind = VERDICT_SLOW};
}

uint32_t chain_group(const struct frame *frame)
{
    site_put(frame->return_address, (struct verdict){.kind = VERDICT_ORDINARY});
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
