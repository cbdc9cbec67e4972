/* Slots, while a plan is made: parts.h says who gets which. */
#include "parts.h"

#include <stdlib.h>

enum { FIRST_ROOM = 1024 };

void slots_init(struct slots *slots)
{
    *slots = (struct slots){.oldest = PLAN_NO_SLOT, .newest = PLAN_NO_SLOT};
}

void thread_slots_init(struct thread_slots *own)
{
    *own = (struct thread_slots){.kept = PLAN_NO_SLOT};
}

static uint32_t take_kept(struct slots *slots, struct thread_slots *own)
{
    uint32_t slot = own->kept;
    own->kept = slots->states[slot].next;
    own->kept_count--;
    return slot;
}

static uint32_t take_oldest(struct slots *slots)
{
    uint32_t slot = slots->oldest;
    slots->oldest = slots->states[slot].next;
    if (slots->oldest == PLAN_NO_SLOT) slots->newest = PLAN_NO_SLOT;
    return slot;
}

static bool make_run(struct slots *slots, struct thread_slots *own)
{
    if (slots->room - slots->count < SLOTS_RUN) {
        uint64_t room = slots->room == 0 ? FIRST_ROOM : (uint64_t)slots->room * 2;
        if (room > PLAN_NO_SLOT) return false;
        struct slot_state *states = realloc(slots->states, room * sizeof *states);
        if (states == NULL) return false;
        slots->states = states;
        slots->room = (uint32_t)room;
    }
    own->fresh = slots->count;
    own->fresh_left = SLOTS_RUN;
    for (uint32_t i = 0; i < SLOTS_RUN; i++) slots->states[slots->count++] = (struct slot_state){.next = PLAN_NO_SLOT};
    return true;
}

uint32_t slot_take(struct slots *slots, struct thread_slots *own, uint64_t now)
{
    if (own->kept != PLAN_NO_SLOT) return take_kept(slots, own);
    if (slots->oldest != PLAN_NO_SLOT && now - slots->states[slots->oldest].emptied >= SLOTS_AGE) {
        return take_oldest(slots);
    }
    if (own->fresh_left == 0 && !make_run(slots, own)) return PLAN_NO_SLOT;
    own->fresh_left--;
    return own->fresh++;
}

void slot_give(struct slots *slots, struct thread_slots *own, uint32_t slot, uint64_t now)
{
    struct slot_state *state = &slots->states[slot];
    if (own->kept_count < SLOTS_KEPT) {
        state->next = own->kept;
        own->kept = slot;
        own->kept_count++;
        return;
    }
    state->next = PLAN_NO_SLOT;
    state->emptied = now;
    if (slots->newest == PLAN_NO_SLOT) slots->oldest = slot;
    else slots->states[slots->newest].next = slot;
    slots->newest = slot;
}
