// A program whose objects are made by call chains that a test names, so that what is decided about their groups can be
// seen. Each in a process of its own.
#ifndef HEAPFIT_TESTS_POOL_PROGRAM_H
#define HEAPFIT_TESTS_POOL_PROGRAM_H

#include "heap_isolated.h"
#include "pools_group_internals.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

// The groups of these tests belong to no chain that the layer knows of: programs are linked with
// --wrap=chain_ask_again.
extern "C" __attribute__((used)) inline void __wrap_chain_ask_again(uint32_t) {}

namespace pool_program
{

// A group of the allocator's, made as by a chain of its own.
class Group
{
  public:
    Group()
    {
        static uintptr_t calls = 0x1000;
        uintptr_t chain = calls += 16;
        number_ = group_new(&chain, 1, true);
    }

    // An object where the allocator wants it, all zeros.
    template <typename Object = void> Object *make(size_t size)
    {
        heap_free(heap_malloc(1)); // so that this thread has a heap
        verdict verdict = group_verdict(number_);
        void *object = place(verdict, size);
        if (object == nullptr) throw std::bad_alloc();
        std::memset(object, 0, size);
        if (verdict.kind == VERDICT_SLOW) group_watch(number_, object, size);
        return static_cast<Object *>(object);
    }
    template <typename Object> Object *make()
    {
        return make<Object>(sizeof(Object));
    }

    const group &seen() const
    {
        return groups[number_];
    }
    uint32_t number() const
    {
        return number_;
    }
    uint32_t pool() const
    {
        return seen().pool;
    }
    bool is(group_state state) const
    {
        return seen().state == state;
    }
    bool is_decided() const
    {
        return !is(GROUP_WATCHED);
    }
    std::string reason() const
    {
        return judge_reason_text(static_cast<enum reason>(seen().reason));
    }

  private:
    uint32_t number_;

    static void *place(const verdict &verdict, size_t size)
    {
        if (verdict.kind == VERDICT_POOL && heap_size_class(size) == verdict.class_of_objects)
            return heap_malloc_bin(thread_heap, verdict.bin, size);
        if (verdict.kind == VERDICT_MIXED) return mixed_malloc(thread_heap, verdict.bin, size);
        return heap_malloc(size);
    }
};

inline ::testing::AssertionResult has_state(const Group &group, group_state state)
{
    static const char *const names[] = {"watched", "ordinary", "pooled", "mixed", "merged"};
    if (group.is(state)) return ::testing::AssertionSuccess();
    const struct group &seen = group.seen();
    return ::testing::AssertionFailure() << "group " << group.number() << " is " << names[seen.state] << " and not "
                                         << names[state] << ": " << group.reason() << " (objects " << seen.objects
                                         << ", freed " << seen.shares.freed << ", own " << seen.shares.own
                                         << ", linked " << seen.shares.linked << ")";
}

inline ::testing::AssertionResult is_pooled(const Group &group)
{
    return has_state(group, GROUP_POOLED);
}

inline ::testing::AssertionResult is_ordinary(const Group &group, const std::string &reason)
{
    ::testing::AssertionResult result = has_state(group, GROUP_ORDINARY);
    if (!result || group.reason() == reason) return result;
    return ::testing::AssertionFailure() << "ordinary, but because: " << group.reason();
}

} // namespace pool_program

#endif
