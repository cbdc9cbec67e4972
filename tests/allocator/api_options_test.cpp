// Options: what HEAPFIT_OPTIONS may hold, what is said about mistakes in it, and hf_option_set and hf_option_get.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include <string>

#include "heapfit/heapfit.h"

namespace
{

std::string value_of(const char *name)
{
    char buffer[32];
    return hf_option_get(name, buffer, sizeof buffer) == 0 ? buffer : "(none)";
}

std::string text_of(const hf_option &option, uint64_t value)
{
    return option.kind == HF_OPTION_CHOICE ? option.choices[value] : std::to_string(value);
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

} // namespace

// ---- HEAPFIT_OPTIONS ---------------------------------------------------------------------------------------------------

TEST_F(Environment, MayBeMissing)
{
    EXPECT_EXIT(exit_telling_whether("decay_ms", "500"), testing::ExitedWithCode(as_expected), silence);
}

TEST_F(Environment, MayBeEmpty)
{
    expect("", "decay_ms", "500", silence);
    expect(",, ,", "decay_ms", "500", silence);
}

TEST_F(Environment, SetsOneOption)
{
    expect("decay_ms:7", "decay_ms", "7", silence);
}

TEST_F(Environment, SetsSeveralOptions)
{
    expect("decay_ms:7,remote_free_batch:8", "decay_ms", "7", silence);
    expect("decay_ms:7,remote_free_batch:8", "remote_free_batch", "8", silence);
    expect(" decay_ms : 7 , remote_free_batch : 8 ,", "remote_free_batch", "8", silence);
}

TEST_F(Environment, TakesTheLastOfTwo)
{
    expect("decay_ms:7,decay_ms:9", "decay_ms", "9", silence);
}

TEST_F(Environment, KnowsSuffixesOfSizes)
{
    expect("thread_span_threshold:128k", "thread_span_threshold", "131072", silence);
    expect("thread_span_threshold:1M", "thread_span_threshold", "1048576", silence);
    expect("reservation:2g", "reservation", "2147483648", silence);
}

TEST_F(Environment, NamesTheNearestOfAnUnknownName)
{
    expect("decay:7", "decay_ms", "500",
           "^heapfit: HEAPFIT_OPTIONS: there is no option 'decay'; the nearest is 'decay_ms'\n$");
    expect("remote_batch:7", "remote_free_batch", "256",
           "^heapfit: HEAPFIT_OPTIONS: there is no option 'remote_batch'; the nearest is 'remote_free_batch'\n$");
    expect("stats:1", "stats_at_exit", "0", "there is no option 'stats'; the nearest is '[a-z_]+'\n$");
}

TEST_F(Environment, GoesOnAfterAMistake)
{
    expect("nonsense,decay_ms:7", "decay_ms", "7",
           "^heapfit: HEAPFIT_OPTIONS: there is no option 'nonsense'; the nearest is '[a-z_]+'\n$");
}

TEST_F(Environment, ReportsEachMistakeOnce)
{
    expect("a:1,decay_ms:x", "decay_ms", "500", "^heapfit: [^\n]*'a'[^\n]*\nheapfit: [^\n]*'x'[^\n]*\n$");
}

TEST_F(Environment, RefusesValuesThatAreNone)
{
    for (const char *options : {"decay_ms:fast", "decay_ms:", "decay_ms", "decay_ms:-1", "decay_ms:1.5",
                                "decay_ms:0x10", "decay_ms:1k", "decay_ms:1 2", "decay_ms:k"})
        expect(options, "decay_ms", "500",
               "^heapfit: HEAPFIT_OPTIONS: '[^\n]*' is no value for 'decay_ms', which takes 0 to 2147483647; it stays "
               "500\n$");
}

TEST_F(Environment, RefusesValuesOutOfRange)
{
    expect(
        "remote_free_batch:0", "remote_free_batch", "256",
        "^heapfit: HEAPFIT_OPTIONS: '0' is no value for 'remote_free_batch', which takes 1 to 4096; it stays 256\n$");
    expect("remote_free_batch:4097", "remote_free_batch", "256", "'4097' is no value");
    expect("decay_ms:99999999999999999999999", "decay_ms", "500", "'99999999999999999999999' is no value");
    expect("reservation:99999999999g", "reservation", "0", "\\(k, m, g are understood\\)");
    expect("stats_at_exit:2", "stats_at_exit", "0", "'2' is no value for 'stats_at_exit', which takes 0 to 1");
}

TEST_F(Environment, TakesTheWordsOfAChoice)
{
    expect("huge_pages:never", "huge_pages", "never", silence);
    expect("huge_pages:always", "huge_pages", "always", silence);
    expect(
        "huge_pages:1", "huge_pages", "auto",
        "^heapfit: HEAPFIT_OPTIONS: '1' is no value for 'huge_pages' \\([^\n]*never, auto[^\n]*\\); it stays auto\n$");
}

TEST_F(Environment, TakesThresholdsFromNoneToBeyondAllMemory)
{
    for (const char *value : {"0", "1", "65536", "70368744177663"})
        expect((std::string("shared_span_threshold:") + value).c_str(), "shared_span_threshold", value, silence);
    for (const char *value : {"unlimited", "70368744177664", "65536g"})
        expect((std::string("shared_span_threshold:") + value).c_str(), "shared_span_threshold", "unlimited", silence);
    for (const char *value : {"-1", "", "1e9", "64t", "65537g", "99999999999999999999999", "none"})
        expect(
            (std::string("shared_span_threshold:") + value).c_str(), "shared_span_threshold", "unlimited",
            "^heapfit: HEAPFIT_OPTIONS: '[^\n]*' is no value for 'shared_span_threshold', which takes 0 to unlimited "
            "\\(k, m, g are understood\\); it stays unlimited\n$");
    expect("numa:off", "numa", "off", silence);
    expect("numa:2", "numa", "auto", "'2' is no value for 'numa' ");
}

namespace
{

// Ten objects come and go; how many system calls gave memory back?
[[noreturn]] void exit_telling_whether_purged(size_t times)
{
    for (int i = 0; i < 10; i++) {
        char *volatile object = static_cast<char *>(hf_malloc(3 << 20));
        memset(object, 1, 3 << 20);
        hf_free(object);
    }
    hf_stats stats;
    hf_stats_get(&stats, sizeof stats);
    exit(stats.purges == times ? as_expected : otherwise);
}

} // namespace

TEST_F(Environment, DecidesWhenFreeMemoryGoesBack)
{
    setenv("HEAPFIT_OPTIONS", "decay_ms:unlimited,thread_span_threshold:0,shared_span_threshold:0", 1);
    EXPECT_EXIT(exit_telling_whether_purged(10), testing::ExitedWithCode(as_expected), silence);
    setenv("HEAPFIT_OPTIONS", "decay_ms:unlimited", 1);
    EXPECT_EXIT(exit_telling_whether_purged(0), testing::ExitedWithCode(as_expected), silence);
}

TEST_F(Environment, SurvivesNonsenseOfAnyLength)
{
    std::string endless(5000, 'x');
    expect(endless.c_str(), "decay_ms", "500", "^heapfit: [^\n]{1,200}\n$");
    expect((endless + ":7").c_str(), "decay_ms", "500", "^heapfit: [^\n]{1,200}\n$");
    expect(("decay_ms:" + endless).c_str(), "decay_ms", "500", "^heapfit: [^\n]{1,200}\n$");
    expect(":::,:,::,%s%n%p:%s", "decay_ms", "500", "'%s%n%p'");
}

TEST_F(Environment, SaysWhatWasUnderstoodWhenAsked)
{
    expect("verbose:1,decay_ms:7", "decay_ms", "7", "^heapfit: version [0-9.]+, options:\nheapfit:   decay_ms:7 \\(");
}

namespace
{

[[noreturn]] void exit_telling_whether_small()
{
    hf_stats stats;
    hf_free(hf_malloc(1));
    exit(hf_stats_get(&stats, sizeof stats) == 0 && stats.reserved == size_t{64} << 20 ? as_expected : otherwise);
}

} // namespace

TEST_F(Environment, LimitsTheReservation)
{
    setenv("HEAPFIT_OPTIONS", "reservation:64m", 1);
    EXPECT_EXIT(exit_telling_whether_small(), testing::ExitedWithCode(as_expected), silence);
}

namespace
{

[[noreturn]] void exit_having_allocated()
{
    void *volatile object = hf_malloc(100);
    exit(object != nullptr ? as_expected : otherwise);
}

} // namespace

TEST_F(Environment, WritesStatisticsAtExitWhenAsked)
{
    setenv("HEAPFIT_OPTIONS", "stats_at_exit:1", 1);
    EXPECT_EXIT(exit_having_allocated(), testing::ExitedWithCode(as_expected),
                "^heapfit [0-9.]+, process [0-9]+\n  live .* MiB in [0-9]+ objects");
}

namespace
{

[[noreturn]] void exit_without_stderr()
{
    close(STDERR_FILENO);
    exit(as_expected);
}

} // namespace

TEST_F(Environment, WritesStatisticsOfProgramsThatCloseStderr)
{
    setenv("HEAPFIT_OPTIONS", "stats_at_exit:1", 1);
    EXPECT_EXIT(exit_without_stderr(), testing::ExitedWithCode(as_expected), "^heapfit [0-9.]+, process [0-9]+\n");
}

// ---- hf_option_set, hf_option_get -----------------------------------------------------------------------------------------

TEST(Options, CanBeSetAndReadBack)
{
    EXPECT_EQ(hf_option_set("decay_ms", "1234"), 0);
    EXPECT_EQ(value_of("decay_ms"), "1234");
    EXPECT_EQ(hf_option_set("thread_span_threshold", "64k"), 0);
    EXPECT_EQ(value_of("thread_span_threshold"), "65536");
    EXPECT_EQ(hf_option_set("decay_ms", "500"), 0);
}

TEST(Options, SaySoWhenTheNameIsUnknown)
{
    char buffer[32];
    errno = 0;
    EXPECT_EQ(hf_option_set("decay", "1"), -1);
    EXPECT_EQ(errno, ENOENT);
    errno = 0;
    EXPECT_EQ(hf_option_get("", buffer, sizeof buffer), -1);
    EXPECT_EQ(errno, ENOENT);
}

TEST(Options, KeepTheirValueWhenTheNewOneIsBad)
{
    errno = 0;
    EXPECT_EQ(hf_option_set("decay_ms", "soon"), -1);
    EXPECT_EQ(errno, EINVAL);
    errno = 0;
    EXPECT_EQ(hf_option_set("remote_free_batch", "0"), -1);
    EXPECT_EQ(errno, ERANGE);
    errno = 0;
    EXPECT_EQ(hf_option_set("reservation", "18446744073709551616"), -1);
    EXPECT_EQ(errno, ERANGE);
    EXPECT_EQ(value_of("decay_ms"), "500");
    EXPECT_EQ(value_of("remote_free_batch"), "256");
}

TEST(Options, ThatAreNotLiveCannotBeSetAnyMore)
{
    hf_free(hf_malloc(1));
    errno = 0;
    EXPECT_EQ(hf_option_set("reservation", "1g"), -1);
    EXPECT_EQ(errno, EBUSY);
}

TEST(Options, NeedRoomForTheirValue)
{
    char buffer[4];
    ASSERT_EQ(hf_option_set("decay_ms", "1234"), 0);
    errno = 0;
    EXPECT_EQ(hf_option_get("decay_ms", buffer, sizeof buffer), -1);
    EXPECT_EQ(errno, ERANGE);
    ASSERT_EQ(hf_option_set("decay_ms", "123"), 0);
    EXPECT_EQ(hf_option_get("decay_ms", buffer, sizeof buffer), 0);
    EXPECT_STREQ(buffer, "123");
    ASSERT_EQ(hf_option_set("decay_ms", "500"), 0);
}

TEST(Options, DescribeThemselves)
{
    ASSERT_GE(hf_option_count(), 7u);
    EXPECT_EQ(hf_option_at(hf_option_count()), nullptr);
    for (size_t i = 0; i < hf_option_count(); i++) {
        const hf_option *option = hf_option_at(i);
        EXPECT_GT(strlen(option->description), 10u) << option->name;
        EXPECT_EQ(strchr(option->description, '\n'), nullptr) << option->name;
        EXPECT_LE(option->minimum, option->initial) << option->name;
        EXPECT_GE(option->maximum, option->initial) << option->name;
        EXPECT_EQ(option->choices != nullptr, option->kind == HF_OPTION_CHOICE) << option->name;
    }
}

TEST(Options, StartWithTheDefaultsThatTheyDescribe)
{
    for (size_t i = 0; i < hf_option_count(); i++)
        EXPECT_EQ(value_of(hf_option_at(i)->name), text_of(*hf_option_at(i), hf_option_at(i)->initial));
}

TEST(Options, TakeTheLimitsThatTheyDescribe)
{
    for (size_t i = 0; i < hf_option_count(); i++) {
        const hf_option *option = hf_option_at(i);
        if (!option->live) continue;
        for (uint64_t limit : {option->minimum, option->maximum, option->initial}) {
            EXPECT_EQ(hf_option_set(option->name, text_of(*option, limit).c_str()), 0) << option->name;
            EXPECT_EQ(value_of(option->name), text_of(*option, limit));
        }
    }
}
