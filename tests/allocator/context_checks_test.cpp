// What builds for debugging say of a program that misuses contexts. Linked with a library that has the checks in, whatever
// this build is for.
#include "context_subject.h"
#include "system.h"

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
const std::string NOT_OWNER = line("a context is used by another thread than its owner");
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

TEST_F(ContextChecks, AnObjectFreedTwice)
{
    for (size_t size : {40, 700, 16000}) {
        char *object = allocate(size);
        hf_context_free(context.get(), object);
        EXPECT_DEATH(hf_context_free(context.get(), object), NOT_LIVE);
        EXPECT_DEATH(hf_free(object), NOT_LIVE);
    }
}

TEST_F(ContextChecks, AnObjectFreedAfterFreeAll)
{
    char *object = allocate(40);
    hf_context_free_all(context.get());
    EXPECT_DEATH(hf_context_free(context.get(), object), NOT_ALLOCATED) << "its segment is unused";
    EXPECT_DEATH(hf_free(object), NOT_ALLOCATED);
    allocate(700);
    EXPECT_DEATH(hf_free(object + 1024), NOT_LIVE) << "its segment is used for another size";
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
