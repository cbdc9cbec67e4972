/* What does it cost to walk orders, trades and log records that were made in turn?
 *
 * A market in memory. Traders place orders and take some back; an order that meets others is executed against them,
 * best price first, oldest first. Orders, trades and the records of a log are objects of one size class, made in
 * turn from three places while the market is open. Then each kind is walked by itself, again and again, in the order
 * of its list: what is open, who has bought and sold what, and whether the log is whole. A size-segregated heap has
 * the three kinds side by side in every span, so that each walk reads the memory of all.
 */
#include "../micro/micro.h"

static uint64_t messages = 900000, reports = 15, traders = 500, instruments = 16, cancelled = 15;

enum { PRICES = 1024, QUANTITY_MOST = 100, INSTRUMENTS_MAX = 1024 };
enum event { ACCEPTED, EXECUTED, CANCELLED };

struct order {
    struct order *next; /* of all orders, by time */
    struct order *behind; /* in the queue of its price */
    uint64_t id, time;
    uint32_t trader, price, quantity;
    uint32_t left; /* not executed yet; 0 once it was taken back */
    uint16_t instrument;
    bool buys;
    bool taken_back;
};

struct trade {
    struct trade *next;
    uint64_t id, time;
    uint64_t order; /* that came last */
    uint32_t buyer, seller; /* traders */
    uint32_t price, quantity;
    uint16_t instrument;
};

struct record {
    struct record *next;
    uint64_t time, order;
    uint64_t cause; /* the order that it was executed against, or itself */
    uint64_t chain; /* of all records up to this */
    uint32_t trader, quantity, price;
    uint16_t instrument;
    uint8_t event; /* enum event */
};

_Static_assert(sizeof(struct order) == sizeof(struct trade) && sizeof(struct trade) == sizeof(struct record),
               "the three kinds are of one size");

/* The orders that wait at one price, oldest first. */
struct queue {
    struct order *first, *last;
};

struct book {
    struct queue bids[PRICES], asks[PRICES];
    uint32_t best_bid, best_ask; /* no better order waits; PRICES and beyond: none at all */
};

static struct order *orders, **orders_end = &orders;
static struct trade *trades, **trades_end = &trades;
static struct record *records, **records_end = &records;
static uint64_t order_count, trade_count, record_count, clock_ticks, chain;

static struct book *books;
static struct order **last_orders; /* of each trader: which it may take back */

/* ------------------------------------------------------------------ what is kept of all that happens */

static uint64_t record_hash(uint64_t before, const struct record *record)
{
    return micro_mix(before ^ (record->order << 20) ^ (record->cause << 40) ^ ((uint64_t)record->quantity << 8) ^
                     record->event);
}

static void record_add(const struct order *order, enum event event, uint32_t quantity, uint64_t cause)
{
    struct record *record = BLOCK_OF(struct record);
    *record = (struct record){.time = ++clock_ticks,
                              .order = order->id,
                              .cause = cause,
                              .trader = order->trader,
                              .quantity = quantity,
                              .price = order->price,
                              .instrument = order->instrument,
                              .event = (uint8_t)event};
    record->chain = chain = record_hash(chain, record);
    *records_end = record;
    records_end = &record->next;
    record_count++;
}

static void trade_add(const struct order *taker, const struct order *maker, uint32_t quantity)
{
    struct trade *trade = BLOCK_OF(struct trade);
    const struct order *buyer = taker->buys ? taker : maker, *seller = taker->buys ? maker : taker;
    *trade = (struct trade){.id = trade_count++,
                            .time = clock_ticks,
                            .buyer = buyer->trader,
                            .seller = seller->trader,
                            .price = maker->price,
                            .quantity = quantity,
                            .instrument = maker->instrument,
                            .order = taker->id};
    *trades_end = trade;
    trades_end = &trade->next;
}

/* ------------------------------------------------------------------ the market */

/* The oldest order of a queue that still waits for something. */
static struct order *queue_first(struct queue *queue)
{
    while (queue->first && queue->first->left == 0) queue->first = queue->first->behind;
    return queue->first;
}

static void queue_add(struct queue *queue, struct order *order)
{
    if (queue_first(queue)) queue->last->behind = order;
    else queue->first = order;
    queue->last = order;
}

static struct order *best_ask(struct book *book)
{
    struct order *order;
    for (; book->best_ask < PRICES; book->best_ask++)
        if ((order = queue_first(&book->asks[book->best_ask]))) return order;
    return NULL;
}

/* The best bid is kept as a number that falls below 0 to beyond PRICES. */
static struct order *best_bid(struct book *book)
{
    struct order *order;
    for (; book->best_bid < PRICES; book->best_bid--)
        if ((order = queue_first(&book->bids[book->best_bid]))) return order;
    return NULL;
}

static struct order *counterpart(struct book *book, const struct order *order)
{
    struct order *best = order->buys ? best_ask(book) : best_bid(book);
    if (!best) return NULL;
    return order->buys ? (best->price <= order->price ? best : NULL) : (best->price >= order->price ? best : NULL);
}

static void order_wait(struct book *book, struct order *order)
{
    if (order->buys) {
        queue_add(&book->bids[order->price], order);
        if (book->best_bid >= PRICES || order->price > book->best_bid) book->best_bid = order->price;
    } else {
        queue_add(&book->asks[order->price], order);
        if (order->price < book->best_ask) book->best_ask = order->price;
    }
}

static void order_execute(struct order *order)
{
    struct book *book = &books[order->instrument];
    struct order *other;
    while (order->left > 0 && (other = counterpart(book, order))) {
        uint32_t quantity = order->left < other->left ? order->left : other->left;
        order->left -= quantity;
        other->left -= quantity;
        trade_add(order, other, quantity);
        record_add(other, EXECUTED, quantity, order->id);
    }
    if (order->left > 0) order_wait(book, order);
}

static void order_place(micro_random *random)
{
    struct order *order = BLOCK_OF(struct order);
    uint32_t middle = PRICES / 2 + (uint32_t)(clock_ticks / 20000 % (PRICES / 4)); /* prices rise */
    *order = (struct order){.id = order_count++,
                            .time = clock_ticks,
                            .trader = (uint32_t)micro_below(random, traders),
                            .quantity = (uint32_t)micro_between(random, 1, QUANTITY_MOST),
                            .instrument = (uint16_t)micro_below(random, instruments),
                            .buys = micro_below(random, 2)};
    order->price = middle + (uint32_t)micro_below(random, 32) - 16;
    order->left = order->quantity;
    last_orders[order->trader] = order;
    *orders_end = order;
    orders_end = &order->next;
    record_add(order, ACCEPTED, order->quantity, order->id);
    order_execute(order);
}

static void order_take_back(micro_random *random)
{
    struct order *order = last_orders[micro_below(random, traders)];
    if (!order || order->left == 0) return;
    record_add(order, CANCELLED, order->left, order->id);
    order->taken_back = true;
    order->quantity -= order->left;
    order->left = 0;
}

static void market_open(micro_random *random)
{
    books = BLOCK_ARRAY(struct book, instruments);
    last_orders = BLOCK_ARRAY(struct order *, traders);
    memset(books, 0, instruments * sizeof *books);
    memset(last_orders, 0, traders * sizeof(struct order *));
    for (uint64_t i = 0; i < instruments; i++) books[i].best_bid = books[i].best_ask = PRICES;
    for (uint64_t i = 0; i < messages; i++) {
        if (micro_below(random, 100) < cancelled) order_take_back(random);
        else order_place(random);
    }
}

/* ------------------------------------------------------------------ reports: each walks one list */

/* What is executed, of orders to buy or to sell. */
static uint64_t orders_report(bool buys, uint64_t *waiting)
{
    uint64_t executed = 0;
    for (const struct order *order = orders; order; order = order->next)
        if (order->buys == buys) {
            executed += order->quantity - order->left;
            *waiting += (uint64_t)order->left * order->price;
        }
    return executed;
}

static uint64_t trades_report(int64_t *positions)
{
    uint64_t quantity = 0;
    for (const struct trade *trade = trades; trade; trade = trade->next) {
        positions[trade->buyer] += trade->quantity;
        positions[trade->seller] -= trade->quantity;
        quantity += trade->quantity;
    }
    return quantity;
}

static uint64_t records_report(void)
{
    uint64_t executed = 0, hash = 0;
    for (const struct record *record = records; record; record = record->next) {
        hash = record_hash(hash, record);
        if (hash != record->chain) micro_fail("the log is broken at time %" PRIu64, record->time);
        if (record->event == EXECUTED) executed += record->quantity;
    }
    return executed;
}

static uint64_t report_all(int64_t *positions)
{
    uint64_t waiting = 0, bought = orders_report(true, &waiting), sold = orders_report(false, &waiting);
    memset(positions, 0, traders * sizeof *positions);
    uint64_t traded = trades_report(positions), logged = records_report();
    if (bought != sold || bought != traded || traded != logged)
        micro_fail("bought %" PRIu64 ", sold %" PRIu64 ", traded %" PRIu64 ", logged %" PRIu64, bought, sold, traded,
                   logged);
    uint64_t digest = waiting + chain;
    for (uint64_t i = 0; i < traders; i++) digest += micro_mix((uint64_t)positions[i] + i);
    return digest;
}

/* Frees a list whose elements begin with the pointer to the next. */
static void list_free(void *list)
{
    while (list) {
        void *next;
        memcpy(&next, list, sizeof next);
        free(list);
        list = next;
    }
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does it cost to walk orders, trades and log records made in turn?",
                (micro_option[]){{"messages", &messages, true, "of traders: orders, and those that take one back"},
                                 {"reports", &reports, false, "each walks all orders twice, all trades and the log"},
                                 {"traders", &traders, false, "who send messages"},
                                 {"instruments", &instruments, false, "that are traded"},
                                 {"cancelled", &cancelled, false, "percent of messages that take an order back"},
                                 {0}});
    micro_require(messages > 0 && reports > 0 && traders > 0 && instruments > 0 && instruments <= INSTRUMENTS_MAX &&
                      cancelled < 100,
                  "a message, a report, a trader, 1 to 1024 instruments at least");
    micro_random random = micro_random_start(0);
    int64_t *positions = micro_map(traders * sizeof *positions);
    uint64_t digest = 0;
    double start = micro_now();
    market_open(&random);
    for (uint64_t i = 0; i < reports; i++) digest = micro_mix(digest) + report_all(positions);
    list_free(orders);
    list_free(trades);
    list_free(records);
    free(books);
    free(last_orders);
    return micro_report(order_count + trade_count + record_count, micro_now() - start, digest);
}
