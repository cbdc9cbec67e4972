// Each function of the malloc family and each operator, with the recorder's in front of the allocator's: it does what it does
// without, and is noted once, as what it is. Built with the C library's allocator behind it, with heapfit's, and with a dlsym
// that allocates.
#include "record_subject.h"
#include "stress_seed.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

extern "C" {
void free_sized(void *pointer, size_t size);
void free_aligned_sized(void *pointer, size_t alignment, size_t size);
}

namespace
{

volatile size_t too_much = static_cast<size_t>(PTRDIFF_MAX) + 1;
constexpr size_t PAGE = 4096;
constexpr auto aligned = std::align_val_t{256};

std::array<subject_event, 1 << 20> taken;

// What the calling thread does between start and end, without a noise of the test's own.
template <typename Calls> std::vector<subject_event> events_of(Calls calls)
{
    subject_start(0, 0);
    calls();
    subject_stop();
    size_t count = subject_take(taken.data(), taken.size());
    return std::vector<subject_event>(taken.begin(), taken.begin() + static_cast<ptrdiff_t>(count));
}

uint64_t number(const void *pointer)
{
    return reinterpret_cast<uintptr_t>(pointer);
}

struct form {
    const char *name;
    unsigned kind, freed_as;
    size_t alignment;
    std::function<void *(size_t)> allocate;
    std::function<void(void *, size_t)> release;
};

#define FREED [](void *p, size_t) { free(p); }
#define DELETED(...)                                                                                                   \
    [](void *p, size_t size) {                                                                                         \
        (void)size;                                                                                                    \
        __VA_ARGS__;                                                                                                   \
    }
#define OF(...) [](size_t n) -> void * { return __VA_ARGS__; }

const form forms[] = {
    {"malloc", SUBJECT_MALLOC, SUBJECT_FREE, 0, OF(malloc(n)), FREED},
    {"calloc", SUBJECT_CALLOC, SUBJECT_FREE, 0, OF(calloc(1, n)), FREED},
    {"calloc of many", SUBJECT_CALLOC, SUBJECT_FREE, 0, OF(calloc(n, 1)), FREED},
    {"realloc of nothing", SUBJECT_MALLOC, SUBJECT_FREE, 0, OF(realloc(nullptr, n)), FREED},
    {"reallocarray of nothing", SUBJECT_MALLOC, SUBJECT_FREE, 0, OF(reallocarray(nullptr, n, 1)), FREED},
    {"aligned_alloc", SUBJECT_ALIGNED, SUBJECT_FREE, 64, OF(aligned_alloc(64, n)), FREED},
    {"memalign", SUBJECT_ALIGNED, SUBJECT_FREE, 128, OF(memalign(128, n)), FREED},
    {"valloc", SUBJECT_ALIGNED, SUBJECT_FREE, PAGE, OF(valloc(n)), FREED},
    {"pvalloc", SUBJECT_ALIGNED, SUBJECT_FREE, PAGE, OF(pvalloc(n)), FREED},
    {"posix_memalign", SUBJECT_ALIGNED, SUBJECT_FREE, 32,
     [](size_t n) {
         void *object = nullptr;
         return posix_memalign(&object, 32, n) == 0 ? object : nullptr;
     },
     FREED},
    {"malloc, free_sized", SUBJECT_MALLOC, SUBJECT_FREE, 0, OF(malloc(n)), DELETED(free_sized(p, size))},
    {"aligned_alloc, free_aligned_sized", SUBJECT_ALIGNED, SUBJECT_FREE, 64, OF(aligned_alloc(64, n)),
     DELETED(free_aligned_sized(p, 64, size))},
    {"new", SUBJECT_NEW, SUBJECT_DELETE, 0, OF(operator new(n)), DELETED(operator delete(p))},
    {"new[]", SUBJECT_NEW, SUBJECT_DELETE, 0, OF(operator new[](n)), DELETED(operator delete[](p))},
    {"new, sized delete", SUBJECT_NEW, SUBJECT_DELETE, 0, OF(operator new(n)), DELETED(operator delete(p, size))},
    {"new[], sized delete[]", SUBJECT_NEW, SUBJECT_DELETE, 0, OF(operator new[](n)),
     DELETED(operator delete[](p, size))},
    {"new nothrow", SUBJECT_NEW, SUBJECT_DELETE, 0, OF(operator new(n, std::nothrow)),
     DELETED(operator delete(p, std::nothrow))},
    {"new[] nothrow", SUBJECT_NEW, SUBJECT_DELETE, 0, OF(operator new[](n, std::nothrow)),
     DELETED(operator delete[](p, std::nothrow))},
    {"aligned new", SUBJECT_NEW_ALIGNED, SUBJECT_DELETE, 256, OF(operator new(n, aligned)),
     DELETED(operator delete(p, aligned))},
    {"aligned new[]", SUBJECT_NEW_ALIGNED, SUBJECT_DELETE, 256, OF(operator new[](n, aligned)),
     DELETED(operator delete[](p, aligned))},
    {"aligned new, sized delete", SUBJECT_NEW_ALIGNED, SUBJECT_DELETE, 256, OF(operator new(n, aligned)),
     DELETED(operator delete(p, size, aligned))},
    {"aligned new[], sized delete[]", SUBJECT_NEW_ALIGNED, SUBJECT_DELETE, 256, OF(operator new[](n, aligned)),
     DELETED(operator delete[](p, size, aligned))},
    {"aligned new nothrow", SUBJECT_NEW_ALIGNED, SUBJECT_DELETE, 256, OF(operator new(n, aligned, std::nothrow)),
     DELETED(operator delete(p, aligned, std::nothrow))},
    {"aligned new[] nothrow", SUBJECT_NEW_ALIGNED, SUBJECT_DELETE, 256, OF(operator new[](n, aligned, std::nothrow)),
     DELETED(operator delete[](p, aligned, std::nothrow))},
};

void expect_noted_once(const form &form)
{
    for (size_t size : {size_t{0}, size_t{1}, size_t{24}, size_t{1000}, size_t{100000}, size_t{3000000}}) {
        void *object = nullptr;
        size_t usable = 0;
        auto events = events_of([&] {
            object = form.allocate(size);
            usable = malloc_usable_size(object);
            memset(object, 1, size);
            form.release(object, size);
        });
        ASSERT_EQ(2U, events.size()) << size;
        EXPECT_EQ(form.kind, events[0].kind);
        EXPECT_EQ(number(object), events[0].address);
        EXPECT_EQ(size, events[0].size);
        EXPECT_EQ(usable - size, events[0].slack);
        EXPECT_EQ(form.alignment, form.alignment == 0 ? events[0].alignment : size_t{1} << events[0].alignment);
        EXPECT_EQ(0U, form.alignment == 0 ? 0 : number(object) % form.alignment);
        EXPECT_EQ(form.freed_as, events[1].kind);
        EXPECT_EQ(number(object), events[1].address);
        EXPECT_LE(events[0].tick, events[1].tick);
        EXPECT_EQ(static_cast<int32_t>(gettid()), events[0].tid);
    }
}

TEST(RecordFront, EachFormIsNotedOnceWithAllThatIsKnown)
{
    for (const auto &form : forms) {
        SCOPED_TRACE(form.name);
        expect_noted_once(form);
    }
}

void expect_failure_noted(const form &form)
{
    std::string name = form.name;
    if (name.find("new") != std::string::npos && name.find("nothrow") == std::string::npos) return;
    void *object = &object;
    int error = 0;
    auto events = events_of([&] {
        errno = 0;
        object = form.allocate(too_much);
        error = errno;
    });
    EXPECT_EQ(nullptr, object);
    EXPECT_TRUE(error == ENOMEM || name == "posix_memalign" || name.find("new") == 0 || name.find("aligned new") == 0);
    ASSERT_EQ(1U, events.size());
    EXPECT_EQ(form.kind, events[0].kind);
    EXPECT_EQ(0U, events[0].address);
    EXPECT_EQ(too_much, events[0].size);
}

TEST(RecordFront, AFailureIsNotedWhereOneIsReturned)
{
    for (const auto &form : forms) {
        SCOPED_TRACE(form.name);
        expect_failure_noted(form);
    }
}

// ---- realloc ----------------------------------------------------------------------------------------------------------------

TEST(RecordRealloc, IsTwoEventsWithOldAndNew)
{
    void *old = nullptr, *object = nullptr;
    size_t usable = 0;
    for (size_t size : {size_t{10}, size_t{200}, size_t{500000}}) {
        auto events = events_of([&] {
            old = malloc(100);
            object = realloc(old, size);
            usable = malloc_usable_size(object);
            free(object);
        });
        ASSERT_EQ(4U, events.size());
        EXPECT_EQ(unsigned{SUBJECT_REALLOC}, events[1].kind);
        EXPECT_EQ(number(old), events[1].address);
        EXPECT_EQ(size, events[1].size);
        EXPECT_EQ(unsigned{SUBJECT_RESULT}, events[2].kind);
        EXPECT_EQ(number(object), events[2].address);
        EXPECT_EQ(usable - size, events[2].slack);
        EXPECT_EQ(number(object), events[3].address);
    }
}

TEST(RecordRealloc, ThatFailsLeavesTheOldBlock)
{
    void *old = nullptr;
    auto events = events_of([&] {
        old = malloc(100);
        EXPECT_EQ(nullptr, realloc(old, too_much));
        free(old);
    });
    ASSERT_EQ(4U, events.size());
    EXPECT_EQ(unsigned{SUBJECT_REALLOC}, events[1].kind);
    EXPECT_EQ(unsigned{SUBJECT_RESULT}, events[2].kind);
    EXPECT_EQ(0U, events[2].address);
    EXPECT_EQ(number(old), events[3].address);
}

// ---- exceptions -----------------------------------------------------------------------------------------------------------------

void *reserve;

TEST(RecordExceptions, ANewHandlerMayMakeRoomAndLeaveByAThrow)
{
    struct derived : std::bad_alloc {
    };
    static int calls;
    calls = 0;
    reserve = malloc(100);
    auto before = std::set_new_handler([] {
        free(reserve);
        reserve = malloc(50);
        if (++calls % 2 == 0) throw derived();
    });
    bool caught = false;
    auto events = events_of([&] {
        try {
            operator delete(operator new(too_much));
        } catch (const derived &) {
            caught = true;
        }
        EXPECT_EQ(nullptr, operator new(too_much, std::nothrow) == nullptr ? nullptr : &caught);
        free(malloc(10));
    });
    std::set_new_handler(before);
    free(reserve);
    EXPECT_TRUE(caught);
    ASSERT_GE(events.size(), 2U);
    EXPECT_EQ(10U, events[events.size() - 2].size);
}

// ---- threads, signals, samples -----------------------------------------------------------------------------------------------------

TEST(RecordThreads, EveryObjectDiesOnceWhoeverFreesIt)
{
    constexpr unsigned THREADS = 4, OBJECTS = 20000;
    static std::array<std::array<void *, OBJECTS>, THREADS> objects;
    auto run = [](void (*body)(unsigned)) {
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < THREADS; t++) threads.emplace_back(body, t);
        for (auto &thread : threads) thread.join();
    };
    auto events = events_of([&] {
        run([](unsigned t) {
            for (auto &object : objects[t]) object = malloc(20 + t);
        });
        run([](unsigned t) {
            for (auto *object : objects[(t + 1) % THREADS]) free(object);
        });
    });
    std::map<uint64_t, int> balance;
    std::map<uint64_t, uint64_t> born;
    for (const auto &event : events) {
        if (event.size >= 20 && event.size < 20 + THREADS && event.kind == SUBJECT_MALLOC) {
            balance[event.address]++;
            born[event.address] = event.tick;
        }
    }
    EXPECT_EQ(size_t{THREADS} * OBJECTS, balance.size());
    for (const auto &event : events)
        if (event.kind == SUBJECT_FREE && balance.count(event.address) != 0) {
            balance[event.address]--;
            EXPECT_LE(born[event.address], event.tick);
        }
    for (const auto &object : objects[0]) EXPECT_EQ(0, balance[number(object)]);
}

TEST(RecordSamples, AllocationAndFreeOfAnObjectAreBothNotedOrNeither)
{
    static std::array<void *, 5000> objects;
    subject_start(10000, 0);
    for (size_t i = 0; i < 200000; i++) {
        void *&object = objects[i * 7919 % objects.size()];
        if (i % 3 == 0) object = realloc(object, 50 + i % 400);
        else {
            free(object);
            object = i % 2 == 0 ? malloc(i % 300) : calloc(1, i % 300);
        }
    }
    for (auto *&object : objects) free(object), object = nullptr;
    subject_stop();
    size_t count = subject_take(taken.data(), taken.size());
    ASSERT_GT(count, 1000U);
    ASSERT_LT(count, 50000U);
    std::map<uint64_t, int> alive;
    for (size_t i = 0; i < count; i++) {
        const auto &event = taken[i];
        if (event.kind == SUBJECT_REALLOC) alive[event.address] = 0; // of one that was noted, or of another
        else if (event.kind == SUBJECT_ENDED) continue;
        else if (event.kind == SUBJECT_FREE) ASSERT_EQ(0, --alive[event.address]);
        else ASSERT_EQ(1, ++alive[event.address]);
    }
    for (const auto &[address, left] : alive) EXPECT_EQ(0, left) << address;
}

// A block of the sample, and what a realloc of it notes on which no sample falls; then its free.
std::vector<unsigned> kinds_of_realloc(size_t size)
{
    subject_start(1000, 0);
    subject_takes(1); // the thread begins to draw
    subject_until_sample(0);
    void *volatile object = malloc(100);
    subject_until_sample(SIZE_MAX);
    void *volatile moved = realloc(object, size);
    free(moved != nullptr ? moved : object);
    subject_stop();
    subject_until_sample(0);
    size_t count = subject_take(taken.data(), taken.size());
    std::vector<unsigned> kinds;
    for (size_t i = 0; i < count; i++) kinds.push_back(taken[i].kind);
    EXPECT_EQ(number(object), count > 1 ? taken[1].address : 0);
    return kinds;
}

TEST(RecordSamples, AReallocOutOfTheSampleEndsTheBlockOnceItHasSucceeded)
{
    EXPECT_EQ((std::vector<unsigned>{SUBJECT_MALLOC, SUBJECT_REALLOC, SUBJECT_ENDED}), kinds_of_realloc(5000));
}

// ---- sites -----------------------------------------------------------------------------------------------------------------------------

struct call_site {
    uintptr_t address;
    void *object;
};

// ---- the library behind ---------------------------------------------------------------------------------------------------------------------

TEST(RecordAllocator, IsTheNextLibraryThatDefinesMalloc)
{
#ifndef HEAPFIT_TEST_BEHIND
#define HEAPFIT_TEST_BEHIND "libc.so.6"
#endif
    EXPECT_NE(nullptr, strstr(subject_allocator(), HEAPFIT_TEST_BEHIND)) << subject_allocator();
}

} // namespace
