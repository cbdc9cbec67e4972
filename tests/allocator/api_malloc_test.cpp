// The malloc family behaves as glibc documents it: malloc(3), posix_memalign(3), malloc_usable_size(3).

#include <gnu/libc-version.h>

#include "heapfit/heapfit.h"
#include "system.h"

extern "C" {
void cfree(void *);
void free_sized(void *, size_t);
void free_aligned_sized(void *, size_t, size_t);
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *__libc_valloc(size_t);
void *__libc_pvalloc(size_t);
void __libc_free(void *);
void __libc_cfree(void *);
int __posix_memalign(void **, size_t, size_t);
}

namespace
{

// Read through memory, so that the compiler does not judge the request itself.
volatile size_t beyond_ptrdiff = static_cast<size_t>(PTRDIFF_MAX) + 1;
volatile size_t half_of_everything = SIZE_MAX / 2;

constexpr size_t kib = 1024, mib = kib * kib;

struct Freed {
    void operator()(void *pointer) const
    {
        free(pointer);
    }
};
using Object = std::unique_ptr<void, Freed>;

bool is_aligned(const void *pointer, size_t alignment)
{
    return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

TEST(Malloc, IsHeapfits)
{
    Object object{malloc(1)};
    EXPECT_TRUE(hf_is_ours(object.get()));
}

TEST(Malloc, RefusesMoreThanPtrdiffMax)
{
    for (size_t size : {size_t{beyond_ptrdiff}, size_t{SIZE_MAX}, SIZE_MAX - 4096}) {
        errno = 0;
        EXPECT_EQ(malloc(size), nullptr) << size;
        EXPECT_EQ(errno, ENOMEM) << size;
    }
}

TEST(Free, LeavesErrnoAlone)
{
    for (size_t size : {size_t{1}, 1000 * size_t{1}, 100 * kib, 64 * mib}) {
        void *object = malloc(size);
        errno = E2BIG;
        free(object);
        EXPECT_EQ(errno, E2BIG) << size;
    }
    errno = E2BIG;
    free(nullptr);
    EXPECT_EQ(errno, E2BIG);
}

TEST(Calloc, NoticesThatTheProductOverflows)
{
    errno = 0;
    EXPECT_EQ(calloc(half_of_everything, 3), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(calloc(beyond_ptrdiff, 1), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

void fill_with_numbers(void *object, size_t size)
{
    for (size_t i = 0; i < size; i++)
        static_cast<unsigned char *>(object)[i] = static_cast<unsigned char>(i * 7 + i / 256);
}

bool has_numbers(const void *object, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (static_cast<const unsigned char *>(object)[i] != static_cast<unsigned char>(i * 7 + i / 256)) return false;
    return true;
}

#if !HEAPFIT_TEST_SANITIZED // whose libraries do not know of threads that are cancelled

// POSIX: malloc is no point at which a thread is cancelled. A request of any kind is made while one waits to act.
void *allocates_while_cancelled(void *reached)
{
    free(malloc(10));
    pthread_cancel(pthread_self());
    std::vector<void *> blocks;
    blocks.reserve(20'400);
    for (int i = 0; i < 400; i++) blocks.push_back(malloc(100'000)); // enough to look at limits and to purge
    for (int i = 0; i < 20'000; i++) blocks.push_back(malloc(2'000));
    for (void *&block : blocks) block = realloc(block, 3'000);
    for (void *block : blocks) free(block);
    malloc_trim(0);
    *static_cast<bool *>(reached) = true;
    pthread_testcancel();
    return nullptr;
}

TEST(Malloc, IsNoPointAtWhichAThreadIsCancelled)
{
    bool reached = false;
    pthread_t thread;
    void *result = nullptr;
    ASSERT_EQ(pthread_create(&thread, nullptr, allocates_while_cancelled, &reached), 0);
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_TRUE(reached);
    EXPECT_EQ(result, PTHREAD_CANCELED);
}

#endif

} // namespace

TEST(Realloc, ToZeroFrees)
{
    for (size_t size : {size_t{10}, 100 * kib}) {
        errno = E2BIG;
        EXPECT_EQ(realloc(malloc(size), 0), nullptr);
        EXPECT_EQ(errno, E2BIG) << "it is no failure";
    }
}

TEST(Realloc, LeavesTheObjectAsItWasWhenItFails)
{
    for (size_t size : {size_t{100}, 100 * kib}) {
        Object object{malloc(size)};
        fill_with_numbers(object.get(), size);
        for (size_t impossible : {size_t{beyond_ptrdiff}, size_t{half_of_everything}}) {
            errno = 0;
            EXPECT_EQ(realloc(object.get(), impossible), nullptr);
            EXPECT_EQ(errno, ENOMEM);
        }
        EXPECT_TRUE(has_numbers(object.get(), size));
    }
}

TEST(Reallocarray, NoticesThatTheProductOverflows)
{
    Object object{malloc(100)};
    fill_with_numbers(object.get(), 100);
    void *volatile same = object.get(); // the compiler believes that a call which fails has freed it
    errno = 0;
    EXPECT_EQ(reallocarray(same, half_of_everything, 3), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_TRUE(has_numbers(object.get(), 100));
}

TEST(PosixMemalign, ReturnsItsErrorsAndLeavesTheRestAlone)
{
    int mark;
    for (size_t alignment : {size_t{0}, size_t{1}, size_t{2}, size_t{4}, size_t{24}, size_t{100}}) {
        void *result = &mark;
        errno = E2BIG;
        EXPECT_EQ(posix_memalign(&result, alignment, 8), EINVAL) << alignment;
        EXPECT_EQ(result, &mark);
        EXPECT_EQ(errno, E2BIG);
    }
    void *result = &mark;
    errno = E2BIG;
    EXPECT_EQ(posix_memalign(&result, 64, beyond_ptrdiff), ENOMEM);
    EXPECT_EQ(result, &mark);
    EXPECT_EQ(errno, ENOMEM) << "as in glibc, and programs read it";
}

TEST(AlignedAlloc, TakesWhatIsNoPowerOfTwoWhereTheCLibraryDoes)
{
    bool any = std::string(gnu_get_libc_version()) < "2.38";
    for (volatile size_t alignment : {size_t{0}, size_t{3}, size_t{48}}) {
        errno = 0;
        Object object{aligned_alloc(alignment, 100)};
        EXPECT_EQ(errno, any ? 0 : EINVAL);
        EXPECT_EQ(object.get() != nullptr, any);
        EXPECT_TRUE(!any || is_aligned(object.get(), alignment > 16 ? 64 : 16));
    }
    Object object{aligned_alloc(4096, 10)}; // a size that is no multiple is allowed since C17
    EXPECT_TRUE(is_aligned(object.get(), 4096));
}

TEST(Memalign, RoundsTheAlignmentUp)
{
    volatile size_t hundred = 100, all = SIZE_MAX;
    Object object{memalign(hundred, 10)};
    EXPECT_TRUE(is_aligned(object.get(), 128));
    errno = 0;
    EXPECT_EQ(memalign(all, 10), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST(Valloc, AlignsToPages)
{
    auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    Object one{valloc(10)}, whole{pvalloc(page + 1)};
    EXPECT_TRUE(is_aligned(one.get(), page));
    EXPECT_TRUE(is_aligned(whole.get(), page));
    EXPECT_GE(malloc_usable_size(whole.get()), 2 * page);
    errno = 0;
    EXPECT_EQ(pvalloc(SIZE_MAX - 1), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST(SecondNames, AllocateAndFreeTheSameMemory)
{
    void *by_posix = nullptr;
    EXPECT_EQ(__posix_memalign(&by_posix, 64, 10), 0);
    void *objects[] = {__libc_malloc(10),
                       __libc_calloc(10, 10),
                       __libc_realloc(malloc(10), 100),
                       __libc_memalign(64, 10),
                       __libc_valloc(10),
                       __libc_pvalloc(10),
                       by_posix};
    for (void *object : objects) {
        EXPECT_TRUE(hf_is_ours(object));
        free(object);
    }
    __libc_free(malloc(10));
    __libc_cfree(malloc(10));
    cfree(malloc(10));
}

TEST(Heapfit, AllocatesUnderItsOwnNames)
{
    void *object = hf_malloc(100);
    ASSERT_TRUE(hf_is_ours(object));
    fill_with_numbers(object, 100);
    object = hf_realloc(object, 10000);
    EXPECT_TRUE(has_numbers(object, 100));
    EXPECT_GE(hf_usable_size(object), 10000u);
    EXPECT_EQ(hf_realloc(object, 0), nullptr);
    hf_free_sized(hf_calloc(10, 10), 100);
    void *aligned = hf_aligned_alloc(1024, 10);
    EXPECT_TRUE(is_aligned(aligned, 1024));
    hf_free(aligned);
    hf_free(nullptr);
    hf_free_sized(nullptr, 1);
    EXPECT_EQ(hf_usable_size(nullptr), 0u);
}

// Redis counts by it; a multiple of the span, as large objects have address space, would be up to twice as much.
TEST(Heapfit, TellsThePagesOfALargeObject)
{
    auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *object = hf_malloc(33'006);
    for (size_t size : std::initializer_list<size_t>{33'006, 70'000, 66'000, 131'072, 40'000, 2'000'000}) {
        object = hf_realloc(object, size);
        EXPECT_LT(hf_usable_size(object), size + page) << size;
        EXPECT_GE(hf_usable_size(object), size);
        EXPECT_EQ(hf_good_size(size), hf_usable_size(object)) << size;
    }
    hf_free(object);
    for (int i = 0; i < 2; i++) { // the second is a run that was kept
        object = hf_malloc(100'000 - static_cast<size_t>(i) * 30'000);
        EXPECT_EQ(hf_good_size(100'000 - static_cast<size_t>(i) * 30'000), hf_usable_size(object));
        hf_free(object);
    }
}

TEST(Heapfit, RefusesAsTheMallocFamilyDoes)
{
    errno = 0;
    EXPECT_EQ(hf_malloc(beyond_ptrdiff), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(hf_calloc(half_of_everything, 3), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(hf_aligned_alloc(3, 8), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(hf_good_size(beyond_ptrdiff), 0u);
}

TEST(Heapfit, KnowsItsOwnAddresses)
{
    int on_the_stack = 0;
    EXPECT_FALSE(hf_is_ours(nullptr));
    EXPECT_FALSE(hf_is_ours(&on_the_stack));
}
