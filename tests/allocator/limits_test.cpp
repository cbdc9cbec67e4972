// The kernel's own limits: each ends in NULL and ENOMEM, spoils nothing, and is forgotten once memory has been freed.
// Needs a process that has not allocated yet under the limit, hence a child for each, and no sanitizer, which would
// need the address space for itself.
#include "figures.h"
#include "guardian.h"
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "model.h"
#include "overcommit.h"
#include "patience.h"
#include "space_walker.h"
#include "system.h"

namespace
{

constexpr size_t MIB = model::MIB;

// Allocates blocks of one size until refused, at most `most` bytes; returns the bytes had. All blocks are chained
// through their first words, so that the test itself needs no memory.
size_t exhaust(size_t size, size_t most)
{
    struct Link {
        Link *next;
        model::Block block;
    };
    Link *chain = nullptr;
    size_t had = 0;
    for (; had < most; had += size) {
        errno = 0;
        auto *link = static_cast<Link *>(heap_malloc(size));
        if (link == nullptr) break;
        auto *contents = reinterpret_cast<unsigned char *>(link + 1);
        *link = {chain, {contents, size, (size - sizeof(Link)) & ~size_t{15}, had}};
        model::fill(link->block);
        chain = link;
    }
    if (had < most) {
        EXPECT_EQ(ENOMEM, errno);
    }
    while (chain != nullptr) {
        Link *link = chain;
        chain = link->next;
        model::expect_intact(link->block);
        heap_free(link);
    }
    return had;
}

TEST(Limits, MoreThanThereCanBe)
{
    isolated::expect_passes([] {
        for (size_t size : {size_t{1} << 47, static_cast<size_t>(PTRDIFF_MAX), SIZE_MAX - 4096, SIZE_MAX}) {
            errno = 0;
            EXPECT_EQ(nullptr, heap_malloc(size)) << size;
            EXPECT_EQ(ENOMEM, errno);
            EXPECT_EQ(nullptr, heap_calloc(size));
            EXPECT_EQ(nullptr, heap_malloc_aligned(size, 64));
            void *block = heap_malloc(100);
            EXPECT_EQ(nullptr, heap_realloc(block, size));
            heap_free(block);
        }
        EXPECT_EQ(nullptr, heap_malloc_aligned(1, size_t{1} << 63));
        EXPECT_EQ(nullptr, heap_malloc_aligned(PTRDIFF_MAX, size_t{1} << 62));
    });
}

TEST(Limits, MemoryLockedFromTheStart)
{
    if (geteuid() != 0) GTEST_SKIP() << "only root may lock memory without limit";
    isolated::expect_passes([] {
        ASSERT_EQ(0, mlockall(MCL_FUTURE));
        for (int round = 0; round < 3; round++) EXPECT_EQ(64 * MIB, exhaust(256 * 1024, 64 * MIB));
        EXPECT_EQ(8 * MIB, exhaust(1024, 8 * MIB));
        heap_trim(); // the kernel takes nothing back
        EXPECT_EQ(64 * MIB, exhaust(512 * 1024, 64 * MIB));
        space_walker::check();
    });
}

#if !HEAPFIT_TEST_EMULATED // the emulator does not pass them on, or its own memory counts

void set_limit(int resource, size_t bytes)
{
    struct rlimit limit;
    ASSERT_EQ(0, getrlimit(resource, &limit));
    limit.rlim_cur = bytes;
    ASSERT_EQ(0, setrlimit(resource, &limit));
}

// Bytes of address space or data that this process has, from the kernel's own count.
size_t current(const char *field)
{
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind(field, 0) == 0) return std::strtoull(line.c_str() + std::strlen(field) + 1, nullptr, 10) * 1024;
    ADD_FAILURE() << "no " << field;
    return 0;
}

// What the allocator may have made accessible before the limit was set.
constexpr size_t COMMITTED_BEFORE = 2 * MIB;

// Under a limit of about `limit` bytes.
void expect_limited_and_recovering(size_t limit)
{
    size_t first = exhaust(256 * 1024, 8 * limit);
    EXPECT_GE(first, limit / 4) << "much less than the limit allows";
    EXPECT_LE(first, limit + COMMITTED_BEFORE) << "the limit has no effect: this test tests nothing";
    for (size_t size : {size_t{1000}, size_t{100}, 3 * MIB, size_t{20'000}}) {
        size_t had = exhaust(size, 8 * limit);
        EXPECT_GE(had, first / 2) << "blocks of " << size << ": memory was lost on the way";
    }
    heap_trim();
    space_walker::check();
}

TEST(Limits, AddressSpace)
{
    isolated::expect_passes([] {
        constexpr size_t LIMIT = 256 * MIB;
        set_limit(RLIMIT_AS, current("VmSize:") + LIMIT);
        expect_limited_and_recovering(LIMIT);
    });
}

// What a thread keeps is given back for both, and for neither where it would not do.
TEST(Limits, ReallocGrowsALargeObjectWhereMallocFindsRoom)
{
    isolated::expect_passes([] {
        heap_settings.thread_spans_cached = 1u << 30;
        space_settings.decay_ms = DECAY_NEVER;
        set_limit(RLIMIT_AS, current("VmSize:") + 256 * MIB);
        std::vector<void *> objects;
        objects.reserve(1000);
        for (void *object; (object = heap_malloc(MIB)) != nullptr;) objects.push_back(object);
        ASSERT_GE(objects.size(), 100u);
        for (size_t i = 1; i < objects.size(); i++) heap_free(objects[i]);
        errno = 0;
        EXPECT_EQ(nullptr, heap_realloc(objects[0], 1000 * MIB));
        EXPECT_EQ(ENOMEM, errno);
        EXPECT_LE(32 * MIB, figures::of_heaps().cached);
        EXPECT_NE(nullptr, heap_realloc(objects[0], 40 * MIB));
    });
}

// The kernel refuses a fork of a mapping that it counts, and that is larger than memory and swap.
TEST(Limits, AForkWhateverHasBeenAccessible)
{
    isolated::expect_passes([] {
        platform_overcommit_learn();
        if (platform_overcommit_is_strict()) return;
        std::vector<void *> blocks;
        for (int i = 0; i < 8; i++) blocks.push_back(heap_malloc(platform_physical_memory() / 2));
        for (void *block : blocks) ASSERT_NE(nullptr, block);
        for (bool are_live : {true, false}) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            ASSERT_GT(child, 0) << std::strerror(errno) << (are_live ? "" : " after all was freed");
            waitpid(child, nullptr, 0);
            if (are_live)
                for (void *block : blocks) heap_free(block);
        }
    });
}

TEST(Limits, StrictOvercommit)
{
    using overcommit::PLENTY;
    overcommit::Strict strict;
    if (!strict.is_on()) GTEST_SKIP() << "only root outside of a container may set vm.overcommit_memory";
    isolated::expect_passes([] {
        platform_overcommit_learn();
        errno = 0;
        EXPECT_EQ(nullptr, heap_malloc(2 * PLENTY)) << "the kernel would not have the memory to back it";
        EXPECT_EQ(ENOMEM, errno);
        EXPECT_EQ(64 * MIB, exhaust(256 * 1024, 64 * MIB)) << "reserving address space must not use up the limit";
        EXPECT_EQ(nullptr, heap_malloc(2 * PLENTY));
        space_walker::check();
    });
}

constexpr std::pair<const char *, const char *> CONTROL_GROUPS[] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                                                    {"/sys/fs/cgroup", "memory.max"}};

// They go when nobody is in them any more.
void remove_control_groups(const std::string &name)
{
    patience::comes_true([&] {
        bool gone = true;
        for (auto [root, file] : CONTROL_GROUPS) gone &= rmdir((root + name).c_str()) == 0 || errno != EBUSY;
        return gone;
    });
}

// A memory control group for one child; version 1 or 2, where one can be made.
class ControlGroup
{
  public:
    explicit ControlGroup(size_t limit)
    {
        for (auto [root, file] : CONTROL_GROUPS) {
            path_ = root + name_;
            if (mkdir(path_.c_str(), 0755) != 0) continue;
            std::ofstream setting(path_ + "/" + file);
            setting << limit << std::flush;
            if (setting.good() && access((path_ + "/" + file).c_str(), F_OK) == 0) return;
            rmdir(path_.c_str());
        }
        path_.clear();
    }

    bool exists() const
    {
        return !path_.empty();
    }

    // Bytes, of all its processes.
    size_t used() const
    {
        size_t bytes = 0;
        for (const char *name : {"/memory.usage_in_bytes", "/memory.current"}) {
            std::ifstream file(path_ + name);
            if (file >> bytes) break;
        }
        return bytes;
    }

    bool enter() const
    {
        std::ofstream processes(path_ + "/cgroup.procs");
        processes << getpid() << std::flush;
        return processes.good();
    }

  private:
    std::string name_ = "/heapfit-test-" + std::to_string(getpid()), path_;
    Guardian guardian_{[name = name_] { remove_control_groups(name); }};
};

// A huge page of which a part has been purged is no longer resident there, but the kernel would keep and count it whole.
TEST(Limits, AControlGroupIsToldOfPagesThatWereInHugeOnes)
{
    constexpr size_t BLOCK = 1 * MIB, BLOCKS = 96;
    ControlGroup group(256 * MIB);
    if (!group.exists()) GTEST_SKIP() << "no memory control group can be made here";
    isolated::expect_passes([&] {
        ASSERT_TRUE(group.enter());
        space_settings.huge_page_price = UINT32_MAX; // whatever they cost
        space_settings.decay_ms = 0;
        std::vector<void *> blocks;
        for (size_t i = 0; i < BLOCKS; i++) {
            blocks.push_back(heap_malloc(BLOCK));
            ASSERT_NE(nullptr, blocks.back());
            memset(blocks.back(), 1, BLOCK);
        }
        EXPECT_GE(group.used(), BLOCKS * BLOCK);
        for (size_t i = 0; i < BLOCKS; i += 2) heap_free(blocks[i]);
        heap_trim();
        EXPECT_LE(group.used(), BLOCKS * BLOCK / 2 + 8 * MIB);
    });
}

#endif

} // namespace
