// realloc of very large blocks when the kernel cannot move their pages. Kernels before 6.17 cannot when the pages lie in
// several mappings, and unmap the target before they say so; the program is linked with a wrapped mremap that does the
// same on any kernel.
#include "heap_isolated.h"
#include "model.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cinttypes>

namespace
{

constexpr size_t MIB = model::MIB;

enum class Kernel { AS_IT_IS, MOVES_ONE_MAPPING } kernel = Kernel::AS_IT_IS;
int moves_refused, moves_done;

// Whether [start, start+size) lies in one mapping.
bool is_one_mapping(uintptr_t start, size_t size)
{
    FILE *maps = std::fopen("/proc/self/maps", "r");
    uintptr_t low, high;
    bool found = false;
    char line[512];
    while (!found && std::fgets(line, sizeof line, maps) != nullptr)
        found = std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &low, &high) == 2 && low <= start && start + size <= high;
    std::fclose(maps);
    return found;
}

} // namespace

extern "C" void *__real_mremap(void *from, size_t old_size, size_t size, int flags, ...);

extern "C" void *__wrap_mremap(void *from, size_t old_size, size_t size, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    void *to = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void *) : nullptr;
    va_end(arguments);
    if (kernel == Kernel::MOVES_ONE_MAPPING && to != nullptr &&
        !is_one_mapping(reinterpret_cast<uintptr_t>(from), size)) {
        munmap(to, size);
        errno = EFAULT;
        moves_refused++;
        return MAP_FAILED;
    }
    void *moved = __real_mremap(from, old_size, size, flags, to);
    if (to != nullptr && moved == to) moves_done++;
    return moved;
}

namespace
{

model::Block block_of(size_t size)
{
    model::Block block{static_cast<unsigned char *>(heap_malloc(size)), size, size, size};
    EXPECT_NE(nullptr, block.start);
    model::fill(block);
    return block;
}

void expect_kept(model::Block block, void *moved)
{
    ASSERT_NE(nullptr, moved);
    block.start = static_cast<unsigned char *>(moved);
    EXPECT_EQ(block.size, model::first_difference(block, block.size));
}

// With less address space allowed than is in use, the kernel unmaps the target of a move, then refuses.
TEST(MovePages, ALimitBelowWhatIsInUseIsAnOrdinaryFailure)
{
    isolated::expect_passes([] {
        model::Block block = block_of(8 * MIB);
        model::Block fence = block_of(MIB);
        heap_free(block_of(40 * MIB).start);
        struct rlimit unlimited;
        ASSERT_EQ(0, getrlimit(RLIMIT_AS, &unlimited));
        struct rlimit limit = unlimited;
        limit.rlim_cur = MIB;
        ASSERT_EQ(0, setrlimit(RLIMIT_AS, &limit));
        errno = 0;
        void *moved = heap_realloc(block.start, 20 * MIB);
        if (moved == nullptr) {
            EXPECT_EQ(ENOMEM, errno);
            EXPECT_EQ(block.size, model::first_difference(block, block.size));
        } else {
            expect_kept(block, moved);
        }
        ASSERT_EQ(0, setrlimit(RLIMIT_AS, &unlimited));
        for (size_t size = 4 * MIB; size < 64 * MIB; size *= 2) block_of(size); // touches all it gets
        (void)fence;
    });
}

} // namespace
