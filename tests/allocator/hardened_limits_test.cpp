// What libheapfit-hardened does where the kernel refuses to change what may be accessed, or allows few mappings. The program is
// linked with --wrap for these calls.

#include "figures.h"
#include "heap_isolated.h"
#include "sanitizer_faults.h"
#include "system.h"

extern "C" {
bool __real_platform_open(void *start, size_t size, bool open);
size_t __real_platform_mappings_max();
}

namespace
{

int openings_before_refusals = -1; // -1: none is refused
size_t mappings_max; // 0: as many as the kernel allows

} // namespace

extern "C" {
bool __wrap_platform_open(void *start, size_t size, bool open)
{
    if (open && openings_before_refusals == 0) return false;
    if (open && openings_before_refusals > 0) openings_before_refusals--;
    return __real_platform_open(start, size, open);
}
size_t __wrap_platform_mappings_max()
{
    return mappings_max != 0 ? mappings_max : __real_platform_mappings_max();
}
}

namespace
{

const size_t LARGE = 65536;

char *make(size_t size = LARGE)
{
    return static_cast<char *>(heap_malloc(size));
}

size_t mappings()
{
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) count++;
    return count;
}

bool may_be_overrun(char *object)
{
    char *behind = object + heap_usable_size(object);
    int status = isolated::run_child([behind] { *behind = 1; });
    return WIFEXITED(status);
}

void release(std::vector<char *> &objects)
{
    for (char *object : objects) heap_free(object);
    objects.clear();
}

class HardenedGuards : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (HEAPFIT_TEST_EMULATED) GTEST_SKIP() << "the address space is limited, so that no page is inaccessible";
    }
};

} // namespace

// What is a mapping of its own when a process forks stays one in the child, whatever becomes of the object there. Each generation
// has objects of other sizes, which stand elsewhere.
void fork_and_use(unsigned generations, size_t before)
{
    std::vector<char *> objects;
    for (size_t i = 0; i < 150; i++) *(objects.emplace_back(make(LARGE + (i * 7 + generations * 13) % 16 * 8192))) = 1;
    EXPECT_LE(mappings() - before, 800u) << generations << " generations to come";
    if (generations > 0)
        isolated::expect_passes([&] {
            release(objects);
            fork_and_use(generations - 1, before);
        });
}

TEST_F(HardenedGuards, NorDoTheyTakeMoreInAChildThatForksAgain)
{
    isolated::expect_passes([] {
        mappings_max = 1600;
        pthread_atfork(heap_fork_begin, heap_fork_end, heap_fork_end_in_child);
        fork_and_use(8, mappings());
    });
}

// The run has grown, and what it has grown by cannot be made accessible: then the object is where it was, as long as it was.
TEST_F(HardenedGuards, AnObjectThatCannotGrowIsAsItWas)
{
    for (int openings : {0, 1}) {
        isolated::expect_passes([openings] {
            char *object = make(300000);
            std::memset(object, 'a', 300000);
            size_t before = figures_now().handed_out;
            openings_before_refusals = openings;
            auto *grown = static_cast<char *>(heap_realloc(object, 20000000));
            openings_before_refusals = -1;
            EXPECT_NE(grown, object);
            EXPECT_EQ('a', grown[299999]);
            EXPECT_LT(figures_now().handed_out - before, 20000000u + 3 * SPAN_SIZE)
                << "its run was given back as it had been";
            EXPECT_FALSE(may_be_overrun(grown));
        });
    }
}
