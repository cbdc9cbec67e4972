// Contexts and several threads: remote frees, handing over, threads that end, forks.
#include "context_subject.h"
#include "heap_isolated.h"
#include "stress_seed.h"
#include "system.h"

using namespace contexts;

namespace
{

template <typename Body> void on_another_thread(Body body)
{
    std::thread(body).join();
}

} // namespace

TEST(ContextRemoteFree, SmallObjectsServeTheOwnerAgain)
{
    Context context = make();
    std::vector<void *> objects;
    for (size_t i = 0; i < 2 * SEGMENT / 256; i++) objects.push_back(hf_context_malloc(context.get(), 256));
    on_another_thread([&] {
        for (void *object : objects) hf_free(object);
    });
    EXPECT_EQ(0u, figures(context).live_bytes) << "figures know, though nobody has taken them in yet";
    for (size_t i = 0; i < objects.size(); i++) hf_context_malloc(context.get(), 256);
    EXPECT_EQ(2 * SEGMENT, figures(context).used_bytes) << "no further segment";
}

TEST(ContextRealloc, ByAnotherThreadMovesWhatMustMove)
{
    for (const Context &context : {make(), make_region()}) {
        void *object = hf_context_malloc(context.get(), 100);
        fill(object, 100, 8);
        on_another_thread([&] {
            auto *resized = hf_realloc(object, 50000);
            EXPECT_TRUE(holds(resized, 100, 8));
            EXPECT_FALSE(hf_context_owns(context.get(), resized)) << "only the owner may allocate there";
            hf_free(resized);
        });
    }
}

TEST(ContextThreadExit, DestructorsOfThreadSpecificDataMaySwitchAndAllocate)
{
    static hf_context *context;
    static pthread_key_t key;
    static std::atomic<int> runs;
    runs = 0;
    // Runs before or after the thread's heap has gone, and again.
    ASSERT_EQ(0, pthread_key_create(&key, [](void *value) {
                  void *where = hf_malloc(100);
                  EXPECT_EQ(hf_context_owns(context, where) ? context : nullptr, hf_context_current());
                  hf_free(where);
                  hf_context *before = hf_context_switch(context);
                  void *inside = hf_malloc(100);
                  hf_context_switch(before);
                  void *outside = hf_malloc(100);
                  EXPECT_TRUE(hf_context_owns(context, inside));
                  hf_free(inside);
                  hf_free(outside);
                  if (++runs < 3) pthread_setspecific(key, value);
              }));
    on_another_thread([] {
        context = hf_context_create(nullptr);
        hf_context_switch(context);
        hf_free(hf_malloc(100));
        pthread_setspecific(key, &key);
    });
    EXPECT_EQ(3, runs);
    pthread_key_delete(key);
    hf_context_enter(context);
    hf_context_destroy(context);
}

#if !HEAPFIT_TEST_SANITIZED && !HEAPFIT_TEST_EMULATED // neither survives a fork among threads
TEST(ContextFork, TheChildGoesOn)
{
    for (const Context &context : {make(), make_region()}) {
        void *object = hf_context_malloc(context.get(), 100);
        fill(object, 100, 6);
        hf_context_switch(context.get());
        pid_t child = fork();
        if (child == 0) {
            void *more = hf_malloc(100);
            hf_context_switch(nullptr);
            bool well = hf_context_owns(context.get(), more) && holds(object, 100, 6);
            hf_context_free(context.get(), object);
            hf_context_free_all(context.get());
            well = well && hf_context_malloc(context.get(), 5 * MIB) != nullptr;
            hf_context_destroy(hf_context_create(nullptr));
            _exit(well ? 0 : 1);
        }
        hf_context_switch(nullptr);
        int status = -1;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status);
        EXPECT_TRUE(holds(object, 100, 6)) << "what the child did is the child's";
    }
}

TEST(ContextFork, WhileOtherThreadsMakeAndEndContexts)
{
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++)
        threads.emplace_back([&] {
            while (!done) {
                Context context = make_region(64 * KIB);
                for (int i = 0; i < 20; i++) hf_context_malloc(context.get(), 60000);
            }
        });
    Context mine = make();
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(isolated::TIMEOUT_SECONDS); // it hangs
            hf_context_malloc(mine.get(), 5 * MIB);
            hf_context_destroy(hf_context_create(nullptr));
            _exit(hf_context_malloc(mine.get(), 100) != nullptr ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        ASSERT_EQ(0, status);
    }
    done = true;
    for (std::thread &thread : threads) thread.join();
}
#endif
