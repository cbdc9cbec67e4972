// What builds for debugging say of a program that misuses contexts. Linked with a library that has the checks in, whatever
// this build is for.
#include "context_subject.h"

#include <thread>

using namespace contexts;

namespace
{

// One line and no more; an emulator adds what it has to say.
std::string line(const std::string &words)
{
    return "heapfit: " + words + ": 0x[0-9a-f]+\n";
}

const std::string NOT_LIVE =
    line("a context's object is freed that is not live: freed twice, or after free_all, or not where "
         "it starts");
const std::string WRITTEN = line("an object of a context was written to after it was freed, or after free_all");
const std::string NOT_ITS_OWN = line("a context is given what is no object of its own");
const std::string NOT_OWNER = line("a context is used by another thread than its owner");
const std::string REALLOCATED = line("a context's object is reallocated that is not live: freed, or after free_all");
const std::string NOT_ALLOCATED = "heapfit: (free|realloc|hf_context_free) of 0x[0-9a-f]+, which is not allocated";

class ContextChecks : public testing::Test
{
  protected:
    ContextChecks()
    {
        // Tests have threads, and sanitizers too; but an emulator cannot start the program anew.
        if (!HEAPFIT_TEST_EMULATED) testing::FLAGS_gtest_death_test_style = "threadsafe";
    }

    char *allocate(size_t size)
    {
        return static_cast<char *>(hf_context_malloc(context.get(), size));
    }

    Context context = make();
};

} // namespace

TEST_F(ContextChecks, AProgramThatDoesNothingWrongHearsNothing)
{
    for (int round = 0; round < 3; round++) {
        for (size_t size : {1, 40, 700, 20000, 100000, 3000000}) {
            char *object = allocate(size);
            fill(object, size, 1);
            object = static_cast<char *>(hf_context_realloc(context.get(), object, size * 2));
            fill(object, size * 2, 2);
            if (round == 1) hf_free(object);
        }
        hf_context_free_all(context.get());
    }
}

TEST_F(ContextChecks, AnObjectFreedTwice)
{
    for (size_t size : {40, 700, 16000}) {
        char *object = allocate(size);
        hf_context_free(context.get(), object);
        EXPECT_DEATH(hf_context_free(context.get(), object), NOT_LIVE);
        EXPECT_DEATH(hf_free(object), NOT_LIVE);
    }
}

TEST_F(ContextChecks, ALargeObjectFreedTwice)
{
    for (size_t size : {40000, 5000000}) {
        char *object = allocate(size);
        hf_context_free(context.get(), object);
        EXPECT_DEATH(hf_free(object), NOT_ALLOCATED);
    }
}

#if !HEAPFIT_TEST_EMULATED // qemu does not survive threads in a child that was forked
TEST_F(ContextChecks, AnObjectFreedTwiceByAnotherThread)
{
    char *object = allocate(40);
    EXPECT_DEATH(
        {
            std::thread([&] { hf_free(object), hf_free(object); }).join();
            for (size_t i = 0; i < SEGMENT; i++) allocate(40); // takes in what came back
        },
        NOT_LIVE);
}
#endif

TEST_F(ContextChecks, AnObjectFreedAfterFreeAll)
{
    char *object = allocate(40);
    hf_context_free_all(context.get());
    EXPECT_DEATH(hf_context_free(context.get(), object), NOT_ALLOCATED) << "its segment is unused";
    EXPECT_DEATH(hf_free(object), NOT_ALLOCATED);
    allocate(700);
    EXPECT_DEATH(hf_free(object + 1024), NOT_LIVE) << "its segment is used for another size";
}

TEST_F(ContextChecks, AnObjectWrittenToAfterItWasFreed)
{
    char *object = allocate(40);
    hf_context_free(context.get(), object);
    object[20] = 1;
    EXPECT_DEATH(allocate(40), WRITTEN);
}

TEST_F(ContextChecks, AnObjectWrittenToAfterFreeAll)
{
    for (size_t size : {40, 40000}) {
        allocate(size);
        char *object = allocate(size);
        hf_context_free_all(context.get());
        object[20] = 1;
        allocate(size);
        EXPECT_DEATH(allocate(size), WRITTEN);
        hf_context_free_all(context.get());
    }
}

TEST_F(ContextChecks, ARegionsObjectWrittenToAfterFreeAll)
{
    context = make_region(64 * KIB);
    char *object = allocate(40);
    hf_context_free_all(context.get());
    object[20] = 1;
    EXPECT_DEATH(allocate(40), WRITTEN);
}

TEST_F(ContextChecks, BytesBehindAnObjectWrittenTo)
{
    char *object = allocate(48);
    object[48] = 1;
    object[60] = 1;
    EXPECT_DEATH(allocate(48), WRITTEN) << "into the next object, which nobody has yet";
}

TEST_F(ContextChecks, ReallocOfWhatIsFree)
{
    char *object = allocate(40);
    hf_context_free(context.get(), object);
    EXPECT_DEATH(hf_context_realloc(context.get(), object, 41), REALLOCATED);
    EXPECT_DEATH(hf_realloc(object, 500), REALLOCATED);
}

TEST_F(ContextChecks, AnAddressInsideAnObject)
{
    char *object = allocate(160);
    EXPECT_DEATH(hf_context_free(context.get(), object + 16), NOT_LIVE);
    EXPECT_DEATH(hf_free(object + 16), NOT_ALLOCATED);
    char *large = allocate(5 * SEGMENT);
    EXPECT_DEATH(hf_free(large + SEGMENT), NOT_ALLOCATED);
    EXPECT_DEATH(hf_free(large + 16), NOT_ALLOCATED);
}

TEST_F(ContextChecks, AnObjectOfAnotherContextOrOfNone)
{
    Context other = make();
    void *others = hf_context_malloc(other.get(), 40);
    void *none = hf_malloc(40);
    int local;
    EXPECT_DEATH(hf_context_free(context.get(), others), NOT_ITS_OWN);
    EXPECT_DEATH(hf_context_free(context.get(), none), NOT_ITS_OWN);
    EXPECT_DEATH(hf_context_free(context.get(), &local), NOT_ITS_OWN);
    EXPECT_DEATH(hf_context_realloc(context.get(), others, 100), NOT_ITS_OWN);
    hf_free(none);
}

#if !HEAPFIT_TEST_EMULATED // qemu does not survive threads in a child that was forked
TEST_F(ContextChecks, UseByAnotherThreadThanTheOwner)
{
    char *object = allocate(40);
    auto elsewhere = [](auto act) { std::thread(act).join(); };
    EXPECT_DEATH(elsewhere([&] { allocate(40); }), NOT_OWNER);
    EXPECT_DEATH(elsewhere([&] { hf_context_free(context.get(), object); }), NOT_OWNER);
    EXPECT_DEATH(elsewhere([&] { hf_context_realloc(context.get(), object, 1); }), NOT_OWNER);
    EXPECT_DEATH(elsewhere([&] { hf_context_free_all(context.get()); }), NOT_OWNER);
    EXPECT_DEATH(elsewhere([&] { hf_context_leave(context.get()); }), NOT_OWNER);
}
#endif

TEST_F(ContextChecks, UseOfAContextThatWasLeft)
{
    hf_context_leave(context.get());
    EXPECT_DEATH(allocate(40), NOT_OWNER);
    hf_context_enter(context.get());
    EXPECT_NE(nullptr, allocate(40));
}
