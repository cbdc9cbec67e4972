// Options: what HEAPFIT_OPTIONS may hold, what is said about mistakes in it, and hf_option_set and hf_option_get.

#include <iterator>

#include "heapfit/heapfit.h"
#include "system.h"

namespace
{

std::string value_of(const char *name)
{
    char buffer[32];
    return hf_option_get(name, buffer, sizeof buffer) == 0 ? buffer : "(none)";
}

std::string text_of(const hf_option &option, uint64_t value)
{
    if (option.kind == HF_OPTION_CHOICE) return option.choices[value];
    if (option.words != nullptr && value == option.minimum) return option.words[0];
    if (option.words != nullptr && value == option.maximum) return option.words[1];
    return option.unlimited != 0 && value == option.maximum ? "unlimited" : std::to_string(value);
}

// Exit codes of the programs that the tests start.
constexpr int as_expected = 42, otherwise = 1;

[[noreturn]] void exit_telling_whether(const char *name, const char *value)
{
    hf_free(hf_malloc(1));
    exit(value_of(name) == value ? as_expected : otherwise);
}

// Each test starts this program again with HEAPFIT_OPTIONS set, and looks at what that one writes to stderr.
class Environment : public testing::Test
{
  protected:
    static void expect(const char *options, const char *name, const char *value, const char *output)
    {
        setenv("HEAPFIT_OPTIONS", options, 1);
        EXPECT_EXIT(exit_telling_whether(name, value), testing::ExitedWithCode(as_expected), output)
            << "HEAPFIT_OPTIONS=" << options;
    }

    void SetUp() override
    {
        testing::GTEST_FLAG(death_test_style) = "threadsafe";
    }
    void TearDown() override
    {
        unsetenv("HEAPFIT_OPTIONS");
    }
};

constexpr const char *silence = "^$";

TEST_F(Environment, SetsSeveralOptions)
{
    expect("decay_ms:7,remote_free_batch:8", "decay_ms", "7", silence);
    expect("decay_ms:7,remote_free_batch:8", "remote_free_batch", "8", silence);
    expect(" decay_ms : 7 , remote_free_batch : 8 ,", "remote_free_batch", "8", silence);
}

TEST_F(Environment, NamesTheNearestOfAnUnknownName)
{
    expect("decay:7", "decay_ms", "500",
           "^heapfit: HEAPFIT_OPTIONS: there is no option 'decay'; the nearest is 'decay_ms'\n$");
    expect("remote_batch:7", "remote_free_batch", "256",
           "^heapfit: HEAPFIT_OPTIONS: there is no option 'remote_batch'; the nearest is 'remote_free_batch'\n$");
    expect("stats:1", "stats_at_exit", "0", "there is no option 'stats'; the nearest is 'stats_at_exit'\n$");
    expect("foo:1", "stats_at_exit", "0", "there is no option 'foo'; verbose:1 lists them\n$");
    expect(":1", "stats_at_exit", "0", "there is no option ''; verbose:1 lists them\n$");
}

TEST_F(Environment, NamesTheVariantThatHasAnOption)
{
    expect("check_family:1", "decay_ms", "500",
           "^heapfit: HEAPFIT_OPTIONS: only libheapfit-hardened.so has the option 'check_family'\n$");
    for (const char *name : {"pools:all", "pool_chain:1", "pool_max_size:64"})
        expect(name, "decay_ms", "500", "only libheapfit-pools.so has the option 'pool[a-z_]*'\n$");
    expect("pool:1", "decay_ms", "500", "there is no option 'pool'; ");
}

TEST_F(Environment, SaysWhatStandsBetweenTwoOptions)
{
    const std::string beginning = "^heapfit: HEAPFIT_OPTIONS: a ',' stands between two options, no blank or ';': ";
    for (const char *options : {"decay_ms:7 verbose:0", "decay_ms:7;verbose:0", "decay_ms=7 ; verbose=0"})
        expect(options, "decay_ms", "500", (beginning + options + "\n$").c_str());
}

TEST_F(Environment, SurvivesNonsenseOfAnyLength)
{
    std::string endless(5000, 'x');
    expect(endless.c_str(), "decay_ms", "500", "^heapfit: [^\n]{1,200}\n$");
    expect((endless + ":7").c_str(), "decay_ms", "500", "^heapfit: [^\n]{1,200}\n$");
    expect(("decay_ms:" + endless).c_str(), "decay_ms", "500", "^heapfit: [^\n]{1,200}\n$");
    expect(":::,:,::,%s%n%p:%s", "decay_ms", "500", "'%s%n%p'");
}

// As daemons do, and programs that then open what they work on.
[[noreturn]] void exit_with_files_of_its_own(const char *path)
{
    constexpr int highest = 1024;
    for (int file = 0; file < highest; file++) close(file);
    for (int file = 0; file < highest / 2; file++) open(path, O_RDWR | O_CREAT, 0600);
    exit(as_expected);
}

} // namespace

TEST_F(Environment, WritesNoStatisticsIntoTheProgramsOwnFiles)
{
    setenv("HEAPFIT_OPTIONS", "stats_at_exit:1", 1);
    const std::string named = testing::TempDir() + "heapfit-own-file-" + std::to_string(getpid());
    setenv("HEAPFIT_TEST_FILE", named.c_str(), 0); // the child may be this program anew
    const char *path = getenv("HEAPFIT_TEST_FILE");
    EXPECT_EXIT(exit_with_files_of_its_own(path), testing::ExitedWithCode(as_expected), "^$");
    std::ifstream file(path);
    ASSERT_TRUE(file);
    const std::string written{std::istreambuf_iterator<char>(file), {}}; // the test program's own output may be there
    EXPECT_EQ(written.find("process "), std::string::npos) << written;
    unlink(path);
}

TEST(Options, CanBeSetAndReadBack)
{
    EXPECT_EQ(hf_option_set("decay_ms", "1234"), 0);
    EXPECT_EQ(value_of("decay_ms"), "1234");
    EXPECT_EQ(hf_option_set("thread_span_threshold", "64k"), 0);
    EXPECT_EQ(value_of("thread_span_threshold"), "65536");
    EXPECT_EQ(hf_option_set("decay_ms", "500"), 0);
}

TEST(Options, ThatAreNotLiveCannotBeSetAnyMore)
{
    hf_free(hf_malloc(1));
    errno = 0;
    EXPECT_EQ(hf_option_set("reservation", "1g"), -1);
    EXPECT_EQ(errno, EBUSY);
}

// Under ThreadSanitizer too.
TEST(Options, CanBeSetWhileThreadsAllocate)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 2; t++)
        threads.emplace_back([&stop, t] {
            std::vector<void *> live(300);
            for (unsigned i = t + 1; !stop; i = i * 1103515245 + 12345) {
                void *&object = live[(i >> 8) % live.size()];
                hf_free(object);
                object =
                    i % 2 == 0 ? hf_calloc(1, (i >> 16) % 20000) : hf_malloc((i >> 16) % (i % 64 == 0 ? 300000 : 2000));
            }
            for (void *object : live) hf_free(object);
        });
    for (int round = 0; round < 300; round++)
        for (size_t i = 0; i < hf_option_count(); i++) {
            const hf_option *option = hf_option_at(i);
            if (option->live == 0 || std::string(option->name) == "stats_at_exit") continue;
            uint64_t most = std::string(option->name) == "zeroed_reserve" ? uint64_t{4} << 20 : option->maximum;
            uint64_t value = round % 3 == 0 ? option->minimum : round % 3 == 1 ? most : option->initial;
            ASSERT_EQ(hf_option_set(option->name, text_of(*option, value).c_str()), 0) << option->name;
        }
    stop = true;
    for (std::thread &each : threads) each.join();
}
