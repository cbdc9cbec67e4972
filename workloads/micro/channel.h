/* A bounded channel between two threads, for the programs that hand blocks from thread to thread.
 *
 * Blocks travel in baskets: the cost of a lock is shared by a whole basket, no thread spins, and the
 * number of blocks under way has a firm bound, so that memory beyond it is the allocator's doing.
 */
#ifndef CHANNEL_H
#define CHANNEL_H

#include "micro.h"

enum { CHANNEL_BASKET = 1024, CHANNEL_BASKETS = 16 };

typedef struct {
    size_t count; /* fewer than CHANNEL_BASKET: the last one */
    micro_slot slots[CHANNEL_BASKET];
} channel_basket;

/* One sender and one receiver. A basket belongs to the side that was given it until it hands it back;
 * `sent` and `received` are under `lock`. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t sent, received;
    channel_basket baskets[CHANNEL_BASKETS];
} channel;

static inline channel *channel_create(void)
{
    channel *own = micro_map(sizeof *own);
    pthread_mutex_init(&own->lock, NULL);
    pthread_cond_init(&own->changed, NULL);
    return own;
}

/* An empty basket for the sender to fill; waits while all are under way. */
static inline channel_basket *channel_empty(channel *own)
{
    pthread_mutex_lock(&own->lock);
    while (own->sent - own->received == CHANNEL_BASKETS) pthread_cond_wait(&own->changed, &own->lock);
    pthread_mutex_unlock(&own->lock);
    return &own->baskets[own->sent % CHANNEL_BASKETS]; /* only the sender writes `sent` */
}

static inline void channel_send(channel *own)
{
    pthread_mutex_lock(&own->lock);
    own->sent++;
    pthread_cond_signal(&own->changed);
    pthread_mutex_unlock(&own->lock);
}

/* The next full basket; waits for one. */
static inline channel_basket *channel_full(channel *own)
{
    pthread_mutex_lock(&own->lock);
    while (own->sent == own->received) pthread_cond_wait(&own->changed, &own->lock);
    pthread_mutex_unlock(&own->lock);
    return &own->baskets[own->received % CHANNEL_BASKETS]; /* only the receiver writes `received` */
}

static inline void channel_done(channel *own)
{
    pthread_mutex_lock(&own->lock);
    own->received++;
    pthread_cond_signal(&own->changed);
    pthread_mutex_unlock(&own->lock);
}

#endif
