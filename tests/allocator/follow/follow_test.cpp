// What follow.c says of functions that allocate: compiled in many ways, written by hand, and of what is none at all.

#include "../stress_seed.h"
#include "subject.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
enum follow { FOLLOW_USED, FOLLOW_PASSED_ON, FOLLOW_UNKNOWN };
follow follow_pointer(uintptr_t return_address, uintptr_t start, uintptr_t end, int *passing, unsigned *decoded);

#define WAY(name) extern const subject subjects_##name[];
FOLLOW_WAYS
#undef WAY
extern const subject assembly_subjects[];
}

namespace
{

constexpr int by_return = -1;
// follow.c's own bounds: from the function's start, and twice from the call.
constexpr unsigned decoded_max = 128 + 2 * 400;

struct Answer {
    int follow;
    int passing;
    unsigned decoded;
};
Answer last_answer;

Answer follow_it(uintptr_t return_address, uintptr_t start, uintptr_t end, int arrives)
{
    Answer answer{FOLLOW_UNKNOWN, arrives, 0};
    answer.follow = follow_pointer(return_address, start, end, &answer.passing, &answer.decoded);
    return answer;
}

void note_caller(void *return_address, int arrives)
{
    Dl_info info;
    ElfW(Sym) *symbol = nullptr;
    ASSERT_NE(dladdr1(return_address, &info, reinterpret_cast<void **>(&symbol), RTLD_DL_SYMENT), 0);
    ASSERT_NE(symbol, nullptr);
    auto start = reinterpret_cast<uintptr_t>(info.dli_saddr);
    last_answer = follow_it(reinterpret_cast<uintptr_t>(return_address), start, start + symbol->st_size, arrives);
}

// Some subjects lose what they have got.
void *make(size_t size)
{
    static std::vector<std::vector<char>> made;
    made.emplace_back(size);
    return made.back().data();
}

} // namespace

// ---- what subjects call: kept apart from them, so that no compiler knows what it does

#define OUTSIDE __attribute__((noinline))

extern "C" {

OUTSIDE void *allocate(size_t size)
{
    note_caller(__builtin_return_address(0), by_return);
    return make(size);
}

OUTSIDE void allocate_into(void **place)
{
    note_caller(__builtin_return_address(0), 0);
    *place = make(64);
}

OUTSIDE int allocate_second(size_t size, void **place)
{
    note_caller(__builtin_return_address(0), 1);
    *place = make(size);
    return 0;
}

OUTSIDE void die(const char *message)
{
    fprintf(stderr, "%s\n", message);
    abort();
}

OUTSIDE void lock_heap() {}
OUTSIDE void unlock_heap() {}
OUTSIDE void initialise(void *) {}
OUTSIDE void initialise_at(void **) {}
OUTSIDE int is_ready()
{
    return 1;
}
}

namespace
{

void check(const subject &subject, const Answer &answer)
{
    EXPECT_EQ(answer.follow, subject.expected);
    EXPECT_LE(answer.decoded, decoded_max);
    if (answer.follow == FOLLOW_PASSED_ON) {
        EXPECT_EQ(answer.passing, subject.passing);
    }
}

struct CompiledWay {
    const char *name;
    const subject *subjects;
};

#define WAY(name) CompiledWay{#name, subjects_##name},
const CompiledWay ways[] = {FOLLOW_WAYS};
#undef WAY

class Follow : public testing::TestWithParam<CompiledWay>
{
};

void check_compiled(const subject *subjects)
{
    for (const subject *subject = subjects; subject->name != nullptr; subject++) {
        SCOPED_TRACE(subject->name);
        last_answer = {-1, 0, 0};
        subject->run();
        check(*subject, last_answer);
    }
}

TEST_P(Follow, TellsWrappersFromOthers)
{
    check_compiled(GetParam().subjects);
}

TEST(Follow, KnowsFunctionsThatAreNotBoundYet)
{
    for (const char *path : {FOLLOW_PLUGINS}) {
        SCOPED_TRACE(path);
        void *plugin = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        ASSERT_NE(plugin, nullptr) << dlerror();
        auto subjects = static_cast<const subject *>(dlsym(plugin, "subjects_plugin"));
        ASSERT_NE(subjects, nullptr);
        check_compiled(subjects);
    }
}

INSTANTIATE_TEST_SUITE_P(Compiled, Follow, testing::ValuesIn(ways),
                         [](const testing::TestParamInfo<CompiledWay> &way) { return way.param.name; });

TEST(Follow, UnderstandsHandWrittenFunctions)
{
    auto address = [](const char *label) { return reinterpret_cast<uintptr_t>(label); };
    for (const subject *subject = assembly_subjects; subject->name != nullptr; subject++) {
        SCOPED_TRACE(subject->name);
        check(*subject,
              follow_it(address(subject->returns), address(subject->start), address(subject->end), subject->arrives));
    }
}

TEST(Follow, SaysTheSameAgain)
{
    const subject &first = assembly_subjects[0];
    for (int i = 0; i < 3; i++) {
        Answer answer = follow_it(reinterpret_cast<uintptr_t>(first.returns), reinterpret_cast<uintptr_t>(first.start),
                                  reinterpret_cast<uintptr_t>(first.end), by_return);
        EXPECT_EQ(answer.follow, FOLLOW_PASSED_ON);
        EXPECT_EQ(answer.decoded, 6U);
    }
}

TEST(Follow, NeedsLittleStack)
{
    // Stacks of programs may be as small as the C library allows; instrumented code needs more.
    const size_t stack_bytes = HEAPFIT_TEST_SANITIZED ? 256 * 1024 : static_cast<size_t>(PTHREAD_STACK_MIN);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack_bytes), 0);
    auto follow_all = [](void *answers) -> void * {
        for (const subject *subject = assembly_subjects; subject->name != nullptr; subject++) {
            follow_it(reinterpret_cast<uintptr_t>(subject->returns), reinterpret_cast<uintptr_t>(subject->start),
                      reinterpret_cast<uintptr_t>(subject->end), subject->arrives);
            ++*static_cast<int *>(answers);
        }
        return nullptr;
    };
    int answers = 0;
    ASSERT_EQ(pthread_create(&thread, &attributes, follow_all, &answers), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    EXPECT_GT(answers, 0);
}

TEST(Follow, KnowsNothingOfWhatIsNoCode)
{
    static char data[64];
    const subject &first = assembly_subjects[0];
    auto start = reinterpret_cast<uintptr_t>(first.start), returns = reinterpret_cast<uintptr_t>(first.returns);
    auto there = reinterpret_cast<uintptr_t>(&data);
    std::vector<char> heap(64, '\x90');
    auto heap_start = reinterpret_cast<uintptr_t>(heap.data());
    auto local = reinterpret_cast<uintptr_t>(&start);
    EXPECT_EQ(follow_it(there + 8, there, there + 64, by_return).follow, FOLLOW_UNKNOWN);
    EXPECT_EQ(follow_it(heap_start + 8, heap_start, heap_start + 64, by_return).follow, FOLLOW_UNKNOWN);
    EXPECT_EQ(follow_it(local + 8, local, local + 64, by_return).follow, FOLLOW_UNKNOWN);
    EXPECT_EQ(follow_it(8, 1, 64, by_return).follow, FOLLOW_UNKNOWN);
    EXPECT_EQ(follow_it(returns, start, 0, by_return).follow, FOLLOW_UNKNOWN) << "no end is known";
    EXPECT_EQ(follow_it(returns, start, returns, by_return).follow, FOLLOW_UNKNOWN) << "the call is its end";
    EXPECT_EQ(follow_it(returns, start, UINTPTR_MAX, by_return).follow, FOLLOW_UNKNOWN) << "reaches beyond its code";
    EXPECT_EQ(follow_it(returns, 0, UINTPTR_MAX, by_return).follow, FOLLOW_UNKNOWN);
}

// Code of the process's own objects, from anywhere to anywhere: as if tables were corrupt.
struct Text {
    uintptr_t start, end;
};

int add_text(dl_phdr_info *info, size_t, void *texts)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &part = info->dlpi_phdr[i];
        if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
        uintptr_t start = info->dlpi_addr + part.p_vaddr;
        static_cast<std::vector<Text> *>(texts)->push_back({start, start + part.p_memsz});
    }
    return 0;
}

TEST(Follow, StaysWithinItsBoundsWhereverItIsSent)
{
    constexpr int rounds = 20000;
    std::vector<Text> texts;
    dl_iterate_phdr(add_text, &texts);
    ASSERT_GE(texts.size(), 3U) << "the program and its libraries";
    SCOPED_TRACE(stress::how_to_repeat());
    stress::Random random(stress::seed());
    int answers[3] = {0, 0, 0};
    for (int round = 0; round < rounds; round++) {
        const Text &text = texts[random.below(texts.size())];
        uintptr_t start = text.start + random.below(text.end - text.start);
        uintptr_t end = start + random.below(4096);
        uintptr_t return_address = start + random.below(256);
        Answer answer = follow_it(return_address, start, end, static_cast<int>(random.below(7)) - 1);
        ASSERT_LE(answer.decoded, decoded_max);
        answers[answer.follow]++;
    }
    for (int count : answers) EXPECT_GT(count, 0);
}

} // namespace
