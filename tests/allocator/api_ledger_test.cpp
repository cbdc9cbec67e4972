// The ledger: each cause of resident memory is planted, and found with its bytes; and all of it is what the kernel counts.

#include <string_view>

#include "heapfit/heapfit.h"
#include "system.h"

namespace
{

constexpr size_t kib = 1024, mib = 1024 * kib, span = 64 * kib;
constexpr size_t block = 1024; // a size class of its own, of which pages and spans hold a whole number

size_t page()
{
    return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

struct Row {
    char cause[16], name[256];
    bool in_heap;
    long heap, thread;
    size_t resident;
};

// Rows as they were at one moment: noted without allocating, for that would be seen.
class Ledger
{
  public:
    Ledger()
    {
        rows_ = static_cast<Row *>(mmap(nullptr, sizeof(Row) * most, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
        EXPECT_EQ(hf_ledger(note, this), 0);
    }
    ~Ledger()
    {
        munmap(rows_, sizeof(Row) * most);
    }
    Ledger(const Ledger &) = delete;
    Ledger &operator=(const Ledger &) = delete;

    template <typename Condition> size_t sum(Condition condition) const
    {
        size_t bytes = 0;
        for (size_t i = 0; i < count_; i++)
            if (condition(rows_[i])) bytes += rows_[i].resident;
        return bytes;
    }
    size_t of(std::string_view cause) const
    {
        return sum([&](const Row &row) { return row.cause == cause; });
    }
    size_t of(std::string_view cause, long thread) const
    {
        return sum([&](const Row &row) { return row.cause == cause && row.thread == thread; });
    }
    static constexpr size_t size() // of what a ledger is noted in, which is in the next one
    {
        return sizeof(Row) * most;
    }
    size_t all() const
    {
        return sum([](const Row &) { return true; });
    }

  private:
    static constexpr size_t most = 1000;

    static void note(const hf_ledger_row *row, void *argument)
    {
        auto *ledger = static_cast<Ledger *>(argument);
        ASSERT_LT(ledger->count_, most);
        Row &noted = ledger->rows_[ledger->count_++];
        snprintf(noted.cause, sizeof noted.cause, "%s", row->cause);
        snprintf(noted.name, sizeof noted.name, "%s", row->name);
        noted.in_heap = row->in_heap != 0;
        noted.heap = row->heap;
        noted.thread = row->thread;
        noted.resident = row->resident;
    }

    Row *rows_;
    size_t count_ = 0;
};

// Bytes by which a cause has grown. What the test itself does with memory may take some pages.
long grown(const Ledger &before, const Ledger &after, std::string_view cause)
{
    return static_cast<long>(after.of(cause)) - static_cast<long>(before.of(cause));
}
long slack()
{
    return static_cast<long>(4 * page());
}

// The same for the whole process, in which a sanitizer's shadow grows whatever is done.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool has_shadow = true;
#else
constexpr bool has_shadow = false;
#endif
long slack_of_all()
{
    return has_shadow ? static_cast<long>(2 * mib) : slack();
}

size_t by_kernel(const char *field)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[1024];
    size_t kibibytes = 0, length = strlen(field);
    while (fgets(line, sizeof line, file) != nullptr)
        if (strncmp(line, field, length) == 0) kibibytes += strtoul(line + length, nullptr, 10);
    fclose(file);
    return kibibytes * kib;
}
size_t resident_by_kernel()
{
    return by_kernel("Rss:");
}

// An emulator shows its own mappings.
bool kernel_tells()
{
    return !HEAPFIT_TEST_EMULATED;
}

void fill(std::vector<char *> &objects)
{
    for (char *&object : objects) {
        object = static_cast<char *>(hf_malloc(block));
        memset(object, 1, block);
    }
}
std::vector<char *> allocate(size_t bytes)
{
    std::vector<char *> objects(bytes / block);
    fill(objects);
    return objects;
}

// Free all but those that begin at a multiple of `distance`, and return how many these are.
size_t thin_out(std::vector<char *> &objects, size_t distance)
{
    auto goes = [&](const char *object) { return reinterpret_cast<uintptr_t>(object) % distance != 0; };
    for (char *object : objects)
        if (goes(object)) hf_free(object);
    objects.erase(std::remove_if(objects.begin(), objects.end(), goes), objects.end());
    return objects.size();
}

void free_all(const std::vector<char *> &objects)
{
    for (char *object : objects) hf_free(object);
}

// Nothing goes back to the kernel by itself.
class LedgerTest : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_EQ(hf_option_set("decay_ms", "unlimited"), 0);
        ASSERT_EQ(hf_usable_size(hf_malloc(block)), block);
        resident_by_kernel(); // with all that looking takes
        Ledger first;
    }
};

} // namespace

TEST_F(LedgerTest, LiveBlocksAndWhatTheyPin)
{
    std::vector<char *> objects(4 * mib / block);
    Ledger empty;
    fill(objects);
    Ledger full;
    EXPECT_NEAR(grown(empty, full, "live"), 4 * mib, slack());
    size_t left = thin_out(objects, page());
    Ledger thin;
    ASSERT_GE(left, 4 * mib / page() - 1);
    EXPECT_NEAR(grown(full, thin, "pinned"), left * (page() - block), span + slack());
    EXPECT_NEAR(grown(full, thin, "live"), static_cast<double>(left * block) - 4 * mib, span + slack());
    free_all(objects);
}

TEST_F(LedgerTest, FreeMemoryOfAllWaitsForItsDecay)
{
    ASSERT_EQ(hf_option_set("thread_span_threshold", "0"), 0);
    char *object = static_cast<char *>(hf_malloc(8 * mib));
    memset(object, 1, 8 * mib);
    Ledger before;
    hf_free(object);
    Ledger after;
    EXPECT_NEAR(grown(before, after, "decaying"), 8 * mib, slack());
    EXPECT_NEAR(grown(before, after, "live"), -static_cast<double>(8 * mib), slack());
    hf_trim();
    EXPECT_NEAR(grown(after, Ledger(), "decaying"), -static_cast<double>(8 * mib), slack());
}

TEST_F(LedgerTest, TheRestOfAHugePageWasNeverUsed)
{
    constexpr size_t huge = 2 * mib, size = 48 * mib + span;
    char *object = static_cast<char *>(hf_malloc(size));
    Ledger before;
    memset(object, 1, size);
    if (by_kernel("AnonHugePages:") < size - huge || !kernel_tells()) GTEST_SKIP() << "the kernel gives no huge pages";
    size_t behind = huge - (reinterpret_cast<uintptr_t>(object) + size) % huge;
    Ledger after;
    EXPECT_NEAR(grown(before, after, "never_used"), behind, slack());
    EXPECT_NEAR(grown(before, after, "live"), size, slack());
    // Behind what was ever handed out, and before what is: left free for its alignment.
    void *aligned = hf_aligned_alloc(huge, huge);
    EXPECT_NEAR(grown(before, Ledger(), "never_used"), behind, slack());
    hf_free(aligned);
    hf_free(object);
}

TEST_F(LedgerTest, ContextsGuardedObjectsAndTablesHaveTheirs)
{
    Ledger before;
    hf_context *context = hf_context_create(nullptr);
    memset(hf_context_malloc(context, mib), 1, mib);
    ASSERT_EQ(hf_option_set("guard_sample", "16"), 0);
    std::vector<char *> objects = allocate(mib);
    ASSERT_EQ(hf_option_set("guard_sample", "0"), 0);
    Ledger after;
    EXPECT_GE(grown(before, after, "contexts"), static_cast<long>(mib));
    EXPECT_LE(grown(before, after, "contexts"), static_cast<long>(2 * mib) + slack()); // all of a huge page
    hf_stats stats;
    ASSERT_EQ(hf_stats_get(&stats, sizeof stats), 0);
    ASSERT_GT(stats.guard_objects, 10u);
    EXPECT_EQ(after.of("guarded"), stats.guard_objects * page());
    EXPECT_GE(after.of("tables"), page());
    free_all(objects);
    hf_context_destroy(context);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // whose own mappings would be among ours
TEST_F(LedgerTest, MappingsOfTheProgramAreToldApart)
{
    if (!kernel_tells()) GTEST_SKIP() << "/proc/self/smaps is not about this program";
    Ledger before;
    auto touched = [](int protection, int flags, size_t size, int file = -1) {
        void *start = mmap(nullptr, size, protection, flags, file, 0);
        memset(start, 1, size);
        return start;
    };
    int file = memfd_create("planted", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file, 3 * mib), 0);
    void *anonymous = touched(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 5 * mib);
    void *code = touched(PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, mib);
    void *shared = touched(PROT_READ | PROT_WRITE, MAP_SHARED, 3 * mib, file);
    char path[] = "/tmp/heapfit-ledger-XXXXXX";
    int named = mkstemp(path);
    ASSERT_EQ(ftruncate(named, 2 * mib), 0);
    void *mapped = touched(PROT_READ | PROT_WRITE, MAP_PRIVATE, 2 * mib, named);
    Ledger after;
    EXPECT_NEAR(grown(before, after, "anonymous"), 5 * mib + Ledger::size(), slack());
    EXPECT_NEAR(grown(before, after, "jit"), mib, slack());
    EXPECT_NEAR(grown(before, after, "shared"), 3 * mib, slack());
    EXPECT_EQ(after.sum([&](const Row &row) {
        return row.cause == std::string_view("file") && row.name == std::string_view(path);
    }),
              2 * mib);
    unlink(path);
    close(named);
    close(file);
    munmap(anonymous, 5 * mib);
    munmap(code, mib);
    munmap(shared, 3 * mib);
    munmap(mapped, 2 * mib);
}
#endif

TEST_F(LedgerTest, AllRowsAreWhatTheKernelCounts)
{
    if (!kernel_tells()) GTEST_SKIP() << "/proc/self/smaps is not about this program";
    std::vector<char *> objects = allocate(8 * mib);
    thin_out(objects, 2 * page());
    Ledger now;
    EXPECT_NEAR(now.all(), resident_by_kernel(), slack_of_all());
    free_all(objects);
}

// A child shares all its pages with its parent, as it shares the page of zeros.
TEST_F(LedgerTest, AForksChildSeesItsOwn)
{
    if (!kernel_tells()) GTEST_SKIP() << "/proc/self/smaps is not about this program";
    std::vector<char *> objects = allocate(8 * mib);
    pid_t child = fork();
    if (child == 0) {
        resident_by_kernel(); // with all the code that it takes
        Ledger first, now;
        size_t counted = resident_by_kernel();
        size_t difference = now.all() > counted ? now.all() - counted : counted - now.all();
        _exit(difference <= static_cast<size_t>(slack_of_all()) && now.of("live") >= 8 * mib ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}
