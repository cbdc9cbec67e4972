/* What memory does a server keep after a peak in which objects of two lifetimes were made in turn?
 *
 * A server that users log in to. A session lives on; each session comes with some requests, whose objects are freed
 * when the burst that they came in has been answered. Sessions and requests have the same size and are allocated in
 * turn, from different places. Bursts grow to a peak, each twice as large as the one before, as a day begins; then
 * the server is nearly idle, and its resident memory is printed at once, after 0.5, 1 and 2 s. Where requests stood
 * beside sessions, hardly a page is free as a whole, though most memory is: see Maas and others, "Learning-based
 * memory allocation for C++ server workloads" (ASPLOS 2020).
 */
#include "../micro/micro.h"

static uint64_t peak = 200000, requests = 7, bursts = 12;

struct session {
    struct session *next;
    uint64_t user, opened, answered; /* user number, time, requests */
    uint64_t secret; /* derived from the user */
    char name[24];
};

struct request {
    struct request *next;
    struct session *session;
    uint64_t arrived, question, answer;
    char place[24];
};

_Static_assert(sizeof(struct session) == sizeof(struct request), "the two lifetimes are of one size");

static struct session *sessions;
static struct request *waiting, **waiting_end = &waiting;
static uint64_t session_count, waiting_count, clock_ticks, digest;

static struct session *log_in(uint64_t user)
{
    struct session *session = BLOCK_OF(struct session);
    *session = (struct session){sessions, user, ++clock_ticks, 0, micro_mix(user), ""};
    snprintf(session->name, sizeof session->name, "user-%" PRIu64, user);
    sessions = session;
    session_count++;
    return session;
}

static void ask(struct session *session, uint64_t question)
{
    struct request *request = BLOCK_OF(struct request);
    *request = (struct request){NULL, session, ++clock_ticks, question, 0, ""};
    snprintf(request->place, sizeof request->place, "/%" PRIu64, question % 1000);
    *waiting_end = request;
    waiting_end = &request->next;
    waiting_count++;
}

static void answer_all(void)
{
    while (waiting) {
        struct request *request = waiting;
        if (waiting_count-- == 0) micro_fail("a request is answered that nobody has asked");
        waiting = request->next;
        request->answer = micro_mix(request->question ^ request->session->secret);
        request->session->answered++;
        digest += request->answer + (uint64_t)request->place[1];
        free(request);
    }
    waiting_end = &waiting;
    if (waiting_count > 0) micro_fail("%" PRIu64 " requests are lost", waiting_count);
}

static void burst(uint64_t users, bool last, micro_random *random)
{
    for (uint64_t i = 0; i < users; i++) {
        struct session *session = log_in(session_count);
        for (uint64_t j = 0; j < requests; j++) ask(session, micro_next(random));
    }
    if (last) printf("peak_resident_bytes: %" PRIu64 "\n", micro_resident());
    answer_all();
}

static void idle_until(double when)
{
    while (micro_now() < when) {
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
        ask(sessions, 1);
        waiting->session->answered--; /* how often depends on the clock: it must not show */
        uint64_t before = digest;
        answer_all();
        digest = before;
    }
}

static void log_out_all(void)
{
    for (; sessions; session_count--) {
        struct session *next = sessions->next;
        if (sessions->secret != micro_mix(sessions->user) || sessions->answered != requests)
            micro_fail("the session of user %" PRIu64 " was overwritten", sessions->user);
        digest += sessions->secret;
        free(sessions);
        sessions = next;
    }
    if (session_count > 0) micro_fail("%" PRIu64 " sessions are lost", session_count);
}

int main(int argc, char **argv)
{
    static const struct {
        double seconds;
        const char *name;
    } moments[] = {{0, "0"}, {0.5, "500"}, {1, "1000"}, {2, "2000"}};
    micro_parse(argc, argv, "what memory does a server keep after a peak of objects of two lifetimes?",
                (micro_option[]){{"peak", &peak, true, "sessions of the last and largest burst"},
                                 {"requests", &requests, false, "of each session"},
                                 {"bursts", &bursts, false, "each twice as large as the one before"},
                                 {0}});
    micro_require(peak > 0 && bursts > 0 && bursts < 64, "a session, 1 to 63 bursts");
    setvbuf(stdout, NULL, _IONBF, 0); /* its buffer would come from the allocator */
    micro_random random = micro_random_start(0);
    for (uint64_t i = bursts; i-- > 0;) burst(peak >> i, i == 0, &random);
    double start = micro_now();
    for (size_t i = 0; i < MICRO_COUNT(moments); i++) {
        idle_until(start + moments[i].seconds);
        printf("resident_bytes_after_%s_ms: %" PRIu64 "\n", moments[i].name, micro_resident());
    }
    printf("live_bytes: %" PRIu64 "\n", session_count * (uint64_t)sizeof(struct session));
    uint64_t objects = session_count * (1 + requests);
    log_out_all();
    return micro_report(objects, micro_now() - start, digest);
}
