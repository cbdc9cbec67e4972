// Sites: the return addresses that they are made of are those of the unwinder of the C++ run-time library, each chain has one number
// in all threads, and code that is unmapped is not taken for what comes after it.
#include "record_subject.h"
#include "stress_seed.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace
{

std::atomic<uintptr_t> unmapped_from{UINTPTR_MAX}; // up to UNMAPPED_SIZE further nothing is mapped
enum { LOCK_FREE, LOCK_WANTED, LOCK_HELD };
std::atomic<int> lock_is_held{LOCK_FREE}; // when wanted, the next to ask about an address waits until it is free again
constexpr uintptr_t UNMAPPED_SIZE = 4096;

} // namespace

extern "C" {
int __real__dl_find_object(void *address, struct dl_find_object *result);
int __wrap__dl_find_object(void *address, struct dl_find_object *result)
{
    if (reinterpret_cast<uintptr_t>(address) - unmapped_from < UNMAPPED_SIZE) return -1;
    int wanted = LOCK_WANTED;
    if (lock_is_held.compare_exchange_strong(wanted, LOCK_HELD))
        while (lock_is_held == LOCK_HELD) sched_yield();
    return __real__dl_find_object(address, result);
}
}

namespace
{

#define SITE_OF_CALLER()                                                                                               \
    subject_site(reinterpret_cast<uintptr_t>(__builtin_return_address(0)),                                             \
                 reinterpret_cast<uintptr_t>(__builtin_dwarf_cfa()),                                                   \
                 *static_cast<uintptr_t *>(__builtin_frame_address(0)))

std::vector<uintptr_t> addresses_of(uint32_t site)
{
    std::vector<uintptr_t> addresses;
    for (; site != 0; site = subject_caller(site)) addresses.push_back(subject_address(site));
    return addresses;
}

// From the caller of whoever calls this outwards.
__attribute__((noinline)) std::vector<uintptr_t> unwound()
{
    std::vector<uintptr_t> addresses;
    _Unwind_Backtrace(
        [](_Unwind_Context *context, void *into) {
            static_cast<std::vector<uintptr_t> *>(into)->push_back(_Unwind_GetIP(context));
            return _URC_NO_REASON;
        },
        &addresses);
    addresses.erase(addresses.begin(), addresses.begin() + 2);
    while (addresses.back() == 0) addresses.pop_back(); // who called the first, so to speak
    return addresses;
}

struct seen {
    uint32_t site;
    std::vector<uintptr_t> expected;
};

__attribute__((noinline)) void allocate(seen *result)
{
    result->site = SITE_OF_CALLER();
    result->expected = unwound();
}

__attribute__((noinline)) unsigned deep(unsigned levels, seen *result)
{
    volatile char frame[64] = {};
    if (levels == 0) allocate(result);
    else frame[levels % 64] = static_cast<char>(deep(levels - 1, result));
    return static_cast<unsigned char>(frame[1]) + levels;
}

__attribute__((noinline)) unsigned wide(unsigned levels, seen *result)
{
    volatile char frame[4000] = {};
    if (levels == 0) allocate(result);
    else frame[levels] = static_cast<char>(levels % 2 == 0 ? wide(levels - 1, result) : deep(3, result));
    return static_cast<unsigned char>(frame[1]) + levels;
}

void expect_agrees(const seen &result, size_t most)
{
    auto addresses = addresses_of(result.site);
    ASSERT_GE(addresses.size(), 1U);
    ASSERT_LE(addresses.size(), most);
    ASSERT_LE(addresses.size(), result.expected.size());
    for (size_t i = 0; i < addresses.size(); i++) EXPECT_EQ(result.expected[i], addresses[i]) << i;
}

TEST(RecordSite, IsTheCallersFromTheInnermostOutwards)
{
    for (unsigned sites : {1U, 2U, 8U, 64U}) {
        subject_start(0, sites);
        seen result;
        for (unsigned levels : {0U, 1U, 5U, 100U}) {
            deep(levels, &result);
            expect_agrees(result, sites);
            EXPECT_EQ(std::min<size_t>(sites, result.expected.size()), addresses_of(result.site).size()) << levels;
        }
        wide(6, &result);
        expect_agrees(result, sites);
    }
}

// Made-up stacks, whose addresses are in no code: no rule leads on from them, so each is one return address alone.
uint32_t made_up(uintptr_t address)
{
    std::array<uintptr_t, 4> stack = {};
    return subject_site(address, reinterpret_cast<uintptr_t>(stack.data()), 0);
}

constexpr uintptr_t NOWHERE = uintptr_t{1} << 46;

std::atomic<unsigned> interruptions{0}, waits_for_itself{0};

void handle_as_who_allocates(int)
{
    if (!subject_has_lock()) return;
    interruptions++;
    if (!subject_is_inside()) waits_for_itself++; // the call would be noted, and look for its site
}

// A thread that had its own lock to wait for would not end, so the handler only looks whether it would.
TEST(RecordSite, AHandlerThatInterruptsForgettingDoesNotWaitForTheLockOfItsThread)
{
    subject_start(0, 2);
    for (uint32_t i = 0; i < 100000; i++) made_up(NOWHERE + 2 + i * 5); // tables that take long to forget
    struct sigaction old, action = {};
    action.sa_handler = handle_as_who_allocates;
    ASSERT_EQ(0, sigaction(SIGUSR1, &action, &old));
    std::atomic<bool> stop{false};
    std::thread forgetful([&stop] {
        while (!stop) subject_forget_sites();
    });
    for (int sent = 0; interruptions < 10 && sent < 20000; sent++) {
        pthread_kill(forgetful.native_handle(), SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    stop = true;
    forgetful.join();
    sigaction(SIGUSR1, &old, nullptr);
    if (!HEAPFIT_TEST_SANITIZED) { // whose handlers may be called later
        EXPECT_GT(interruptions, 0U);
    }
    EXPECT_EQ(0U, waits_for_itself);
}

// ---- more chains than there is room for: what follows leaves the tables full ---------------------------------------------

// A chain of calls for each number: each bit decides from which of two places the next call is made.
__attribute__((noinline)) unsigned winding(uint64_t number, unsigned levels, seen *result)
{
    if (levels == 0) {
        result->site = SITE_OF_CALLER();
        return 0;
    }
    unsigned (*volatile next)(uint64_t, unsigned, seen *) =
        winding; // or the compiler makes a loop of it, or one call of both
    unsigned calls = 1;
    // A compiler may move what both places begin or end with out of them: each has something of its own before and after.
    if (number & 1) {
        __asm__ volatile("# before one" : "+r"(calls));
        calls += next(number >> 1, levels - 1, result);
        __asm__ volatile("# after one" : "+r"(calls));
    } else {
        __asm__ volatile("# before the other" : "+r"(calls));
        calls += next(number >> 1, levels - 1, result);
        __asm__ volatile("# after the other" : "+r"(calls));
    }
    return calls;
}

uint64_t mixed(uint64_t number)
{
    return (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

uint32_t site_of_chain(uint64_t number)
{
    seen result{};
    winding(mixed(number), 70, &result);
    return result.site;
}

size_t resident()
{
    size_t pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT_EQ(2, fscanf(file, "%zu %zu", &pages, &resident));
    fclose(file);
    return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

enum { ALL, ALONE, NO_MORE };

TEST(RecordSiteLimit, TablesHaveAnEndAndPastItAChainIsItsInnermostAddress)
{
    constexpr size_t MIB = 1 << 20;
    subject_start(0, 64);
    size_t before = resident();
    uint32_t first = site_of_chain(0);
    EXPECT_EQ(ALL, subject_sites_limit());
    for (uint64_t number = 1; number < 100000; number++) site_of_chain(number);
    EXPECT_EQ(ALONE, subject_sites_limit());
    if (!HEAPFIT_TEST_SANITIZED && !HEAPFIT_TEST_EMULATED) { // those take memory of their own for ours
        EXPECT_LT(resident() - before, 64 * MIB);
    }
    EXPECT_EQ(first, site_of_chain(0)) << "what is known stays";
    EXPECT_EQ(64U, addresses_of(first).size());
    uint32_t late = site_of_chain(100000);
    EXPECT_EQ(late, site_of_chain(100001));
    EXPECT_EQ(std::vector<uintptr_t>{subject_address(first)}, addresses_of(late));
}

} // namespace
