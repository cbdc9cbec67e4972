/* Address space and pages: reserve, commit, purge, move. */
#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#ifndef MREMAP_DONTUNMAP /* Linux 5.7; absent from older headers */
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_COLD /* Linux 5.4 */
#define MADV_COLD 20
#endif
#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_HUGE_2MB /* of linux/mman.h: the size's logarithm */
#define MAP_HUGE_2MB (21 << 26)
#endif
#ifndef MAP_FIXED_NOREPLACE /* Linux 4.17 */
#define MAP_FIXED_NOREPLACE 0x100000
#endif

size_t platform_page_size(void)
{
    return getauxval(AT_PAGESZ);
}

/* All zeros where the kernel does not tell. */
static struct sysinfo memory_of_machine(void)
{
    struct sysinfo info;
    int saved = errno;
    if (platform_call(SYS_sysinfo, &info) != 0) info = (struct sysinfo){0};
    errno = saved;
    return info;
}

size_t platform_physical_memory(void)
{
    struct sysinfo info = memory_of_machine();
    return (size_t)info.totalram * info.mem_unit;
}

static size_t soft_limit(int resource)
{
    struct rlimit limit;
    int saved = errno;
    bool limited = platform_call(SYS_prlimit64, 0, resource, NULL, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    errno = saved;
    return limited ? (size_t)limit.rlim_cur : SIZE_MAX;
}

size_t platform_address_space_limit(void)
{
    return soft_limit(RLIMIT_AS);
}

bool platform_mappings_are_limited(void)
{
    return soft_limit(RLIMIT_DATA) != SIZE_MAX || soft_limit(RLIMIT_AS) != SIZE_MAX;
}

/* gdb writes whatever is mapped and not excluded into a core file, inaccessible pages as zeros. What is accessible follows what
 * is not at one place as before, so that there are no more mappings than there were. */
static void exclude_from_dumps(void *start, size_t size, bool excluded)
{
    madvise(start, size, excluded ? MADV_DONTDUMP : MADV_DODUMP); /* advice: what fails costs a larger file */
}

/* Without a reserve, but for strict overcommit, under which the kernel ignores that: else it counts all that was ever made accessible
 * as one mapping, and refuses a fork when that is more than memory and swap. How much may be made accessible at once
 * is for platform_commit. */
enum { RESERVED = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

void *platform_reserve(size_t size, size_t alignment)
{
    int saved = errno;
    /* Room to slide to an aligned start; what sticks out is unmapped again. */
    size_t padded = size + alignment;
    if (padded < size) return NULL;
    char *start = mmap(NULL, padded, PROT_NONE, RESERVED, -1, 0);
    if (start == MAP_FAILED) {
        errno = saved;
        return NULL;
    }
    size_t before = (size_t)(-(uintptr_t)start) & (alignment - 1);
    size_t after = alignment - before;
    if (before != 0) munmap(start, before);
    if (after != 0) munmap(start + before + size, after);
    exclude_from_dumps(start + before, size, true);
    errno = saved;
    return start + before;
}

bool platform_reserve_at(void *start, size_t size)
{
    int saved = errno;
    /* Linux before 4.17, and emulators, take the address for a wish. */
    void *mapped = mmap(start, size, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0);
    bool done = mapped == start;
    if (done) exclude_from_dumps(start, size, true);
    else if (mapped != MAP_FAILED) munmap(mapped, size);
    errno = saved;
    return done;
}

/* These sanitizers have shadows only for addresses that the kernel would choose, and map others at 0. */
extern void __tsan_init(void) __attribute__((weak));
extern void __msan_init(void) __attribute__((weak));

/* The kernel puts mappings below the stack, downwards, and the program at two thirds of the address space. In between we leave an
 * eighth of it to the kernel, choose at random in the next sixteenth, and there is room for another eighth. */
uintptr_t platform_far_place(size_t size, size_t alignment)
{
    if (&__tsan_init != NULL || &__msan_init != NULL) return 0;
    uintptr_t top = getauxval(AT_RANDOM); /* 16 bytes at the start of the main thread's stack */
    if (top == 0 || size > top / 8) return 0;
    /* Two addresses that the kernel has chosen independently. This one's bits are mixed (Fibonacci hashing). */
    static const char here;
    uint64_t mixed = (top ^ (uintptr_t)&here >> 12 << 20) * UINT64_C(0x9E3779B97F4A7C15);
    uintptr_t slide = mixed % (top / 16);
    return (top - top / 8 - slide - size) & ~(alignment - 1);
}

static bool protect(void *start, size_t size, int protection)
{
    int saved = errno;
    bool done = mprotect(start, size, protection) == 0;
    errno = saved;
    return done;
}

static size_t whole_pages(size_t size)
{
    return (size + platform_page_size() - 1) & ~(platform_page_size() - 1);
}

void *platform_borrow(size_t size)
{
    int saved = errno;
    void *start = mmap(NULL, whole_pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved;
    return start == MAP_FAILED ? NULL : start;
}

bool platform_give_back(void *start, size_t size)
{
    int saved = errno;
    bool done = munmap(start, whole_pages(size)) == 0;
    errno = saved;
    return done;
}

bool platform_make_readable(void *start, size_t size)
{
    return protect(start, size, PROT_READ);
}

/* So much may be made accessible at once without a question. Relaxed: a limit that stands for itself. */
static _Atomic(size_t) commit_most = (size_t)1 << 30;

/* As many bytes as there are of memory and swap, which may be added at any time. */
static size_t learn_commit_most(void)
{
    struct sysinfo info = memory_of_machine();
    size_t all = ((size_t)info.totalram + (size_t)info.totalswap) * info.mem_unit;
    if (all == 0) all = SIZE_MAX;
    atomic_store_explicit(&commit_most, all, memory_order_relaxed);
    return all;
}

bool platform_commit(void *start, size_t size)
{
    bool is_much = size > atomic_load_explicit(&commit_most, memory_order_relaxed);
    if (UNLIKELY(is_much) && size > learn_commit_most()) return false;
    int saved = errno;
    bool done = protect(start, size, PROT_READ | PROT_WRITE);
    if (done) exclude_from_dumps(start, size, false);
    errno = saved;
    return done;
}

void platform_advise_huge_pages(void *start, size_t size, bool wanted)
{
    int saved = errno;
    madvise(start, size, wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    errno = saved;
}

/* To say that a part of a huge page is not needed soon splits it at once, which no advice to drop it does. */
void platform_split_huge_pages(void *start, size_t size)
{
    int saved = errno;
    size_t page = platform_page_size();
    char *first = start, *last = first + size - page;
    if ((uintptr_t)first % PLATFORM_HUGE_PAGE != 0) madvise(first, page, MADV_COLD);
    if ((uintptr_t)(last + page) % PLATFORM_HUGE_PAGE != 0) madvise(last, page, MADV_COLD);
    errno = saved;
}

/* Enough of them that the clock's own cost does not count, few enough that nobody notices. */
enum { PAGES_TIMED = 32 };

uint64_t platform_small_pages_cost_us(void)
{
    int saved = errno;
    size_t page = platform_page_size();
    size_t size = PAGES_TIMED * page;
    volatile char *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t cost = 0;
    if (pages != MAP_FAILED) {
        madvise((void *)pages, size, MADV_NOHUGEPAGE); /* beside another mapping they might get one */
        uint64_t start = platform_clock_thread_us();
        for (size_t at = 0; at < size; at += page) pages[at] = 0;
        cost = (platform_clock_thread_us() - start) * (PLATFORM_HUGE_PAGE / size);
        munmap((void *)pages, size);
    }
    errno = saved;
    return cost;
}

bool platform_purge(void *start, size_t size)
{
    int saved = errno;
    bool done = madvise(start, size, MADV_DONTNEED) == 0;
    errno = saved;
    return done;
}

bool platform_seal(void *start, size_t size)
{
    int saved = errno;
    void *mapped = mmap(start, size, PROT_NONE, RESERVED | MAP_FIXED, -1, 0);
    errno = saved;
    return mapped == start;
}

bool platform_open(void *start, size_t size, bool open)
{
    int saved = errno;
    bool done = mprotect(start, size, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
    errno = saved;
    return done;
}

/* What a file of the kernel's says, as far as it fits. By bare system calls: see platform_node_count. */
static size_t read_setting(const char *name, char *text, size_t capacity)
{
    int saved = errno;
    long file = platform_call(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC), length = -1;
    if (file >= 0) {
        length = platform_call(SYS_read, file, text, capacity);
        platform_call(SYS_close, file);
    }
    errno = saved;
    return length > 0 ? (size_t)length : 0;
}

static _Atomic(bool) overcommit_is_strict; /* relaxed: a flag that stands for itself */

void platform_overcommit_learn(void)
{
    char policy = '0';
    read_setting("/proc/sys/vm/overcommit_memory", &policy, 1);
    atomic_store_explicit(&overcommit_is_strict, policy == '2', memory_order_relaxed);
    if (policy != '0') atomic_store_explicit(&commit_most, SIZE_MAX, memory_order_relaxed); /* the kernel judges */
}

bool platform_overcommit_is_strict(void)
{
    return atomic_load_explicit(&overcommit_is_strict, memory_order_relaxed);
}

size_t platform_mappings_max(void)
{
    enum { DIGITS_MAX = 12, BY_DEFAULT = 65530 }; /* DEFAULT_MAX_MAP_COUNT: include/linux/mm.h */
    char digits[DIGITS_MAX];
    size_t length = read_setting("/proc/sys/vm/max_map_count", digits, sizeof digits), max = 0;
    for (size_t i = 0; i < length && digits[i] >= '0' && digits[i] <= '9'; i++)
        max = max * 10 + (size_t)(digits[i] - '0');
    return max != 0 ? max : BY_DEFAULT;
}

/* From so many bytes on, zeros go past the caches. What is cleared ahead is used some time later: a longer run would
 * have pushed out of the caches what the program works with, its own beginning included, and by then have been pushed
 * out itself. A shorter one is likely to be found in the cache that the cores share. */
#define STREAM_MIN ((size_t)256 << 10)

#if defined(__x86_64__)
static void clear_past_caches(char *start, size_t size)
{
    const __m128i zeros = _mm_setzero_si128();
    for (char *at = start; at < start + size; at += CACHE_LINE)
        for (size_t word = 0; word < CACHE_LINE; word += sizeof zeros) _mm_stream_si128((__m128i *)(at + word), zeros);
    _mm_sfence(); /* these stores are not ordered with others: whoever is told of the memory must see them */
}
#else
/* On aarch64 memset clears whole cache lines at once (dc zva), without reading them first. */
static void clear_past_caches(char *start, size_t size)
{
    memset(start, 0, size);
}
#endif

void platform_clear(void *start, size_t size)
{
    if (size < STREAM_MIN) memset(start, 0, size);
    else clear_past_caches(start, size);
}

void platform_populate(void *start, size_t size)
{
    size_t page = platform_page_size();
    for (char *at = start; at < (char *)start + size; at += page) *(volatile char *)at = 0;
}

size_t platform_resident(const void *start, size_t size)
{
    unsigned char pages[1024]; /* a byte for each; on the stack, so that counting memory takes none */
    int saved = errno;
    size_t page = platform_page_size();
    size_t resident = 0;
    for (size_t done = 0; done < size;) {
        size_t piece = size - done < sizeof pages * page ? size - done : sizeof pages * page;
        if (mincore((char *)start + done, piece, pages) == 0)
            for (size_t i = 0; i < piece / page; i++) resident += pages[i] & 1;
        done += piece;
    }
    errno = saved;
    return resident * page;
}

/* Whether the kernel knows MADV_POPULATE_READ. Before Linux 5.14 it does not, and emulators may call all advice that they do not
 * know taken: no page can be read at the end of the address space, which is the kernel's. */
static bool tells_of_reading(size_t page)
{
    /* Relaxed: every thread finds the same. */
    static _Atomic(signed char) known; /* 0 until asked, then 1 or -1 */
    signed char is = atomic_load_explicit(&known, memory_order_relaxed);
    if (is == 0) {
        void *kernels = (void *)-(2 * page);
        is = madvise(kernels, page, MADV_POPULATE_READ) != 0 && errno != EINVAL ? 1 : -1;
        atomic_store_explicit(&known, is, memory_order_relaxed);
    }
    return is > 0;
}

/* Where there is no such question, by a system call that reads its argument before it finds that it cannot be meant: no
 * program's rules of allowed system calls forbid it. Not the only one, since Valgrind reports it. */
bool platform_is_readable(const void *address)
{
    enum { NO_SUCH_CHANGE = -1, SIGNAL_BYTES = 8 };
    int saved = errno;
    size_t page = platform_page_size();
    void *start = (void *)((uintptr_t)address & ~(page - 1));
    bool readable = tells_of_reading(page)
                        ? madvise(start, page, MADV_POPULATE_READ) == 0
                        : platform_call(SYS_rt_sigprocmask, NO_SUCH_CHANGE, address, NULL, (size_t)SIGNAL_BYTES) != 0 &&
                              errno == EINVAL;
    errno = saved;
    return readable;
}

/* Kernels before 6.17 move one mapping at a time, and have unmapped the target when they find out that there are more:
 * a hole into which another thread's mmap may fall. Asking for one page more in place is refused without harm, and with
 * EFAULT exactly when there are more. */
static bool is_one_mapping(char *start, size_t size)
{
    size_t page = platform_page_size();
    if (mremap(start, size, size + page, 0) == MAP_FAILED) return errno != EFAULT;
    munmap(start + size, page); /* nothing stood behind it, so it grew */
    return true;
}

/* The kernel refused a move. It may have unmapped the target first (limits that were lowered below what is in use), and
 * then leaves a hole. */
static enum platform_move mend_target(void *to, size_t size)
{
    void *mended = mmap(to, size, PROT_READ | PROT_WRITE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0);
    if (mended == to) return MOVE_REFUSED;
    if (mended != MAP_FAILED) munmap(mended, size); /* Linux before 4.17 takes the address for a wish */
    return mended != MAP_FAILED || errno == EEXIST ? MOVE_REFUSED : MOVE_TARGET_LOST;
}

/* Only a new mapping is taken off the account: mprotect leaves what it has made inaccessible on it. Readable, since that costs
 * nothing and a racy look at a free block (heap/remote.c) may come late. */
enum platform_move platform_uncommit(void *start, size_t size)
{
    int saved = errno;
    void *mapped = mmap(start, size, PROT_READ, RESERVED | MAP_FIXED, -1, 0);
    enum platform_move done = mapped != MAP_FAILED ? MOVE_DONE : mend_target(start, size);
    if (done == MOVE_DONE) exclude_from_dumps(start, size, true);
    errno = saved;
    return done;
}

/* qemu's user-mode emulation (7.2) loses track of the source of such a move, and programs crash later. It runs aarch64
 * programs on many build machines, where copying is the price of running at all. */
#if defined(__x86_64__)
enum { MOVES_PAGES = true };
#else
enum { MOVES_PAGES = false };
#endif

enum platform_move platform_move_pages(void *from, void *to, size_t size)
{
    int saved = errno;
    enum platform_move move = MOVE_REFUSED;
    if (MOVES_PAGES && is_one_mapping(from, size)) {
        /* DONTUNMAP keeps the source mapped, so no other thread's mmap can ever land in a hole of our
         * reservation. */
        void *moved = mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
        move = moved != MAP_FAILED ? MOVE_DONE : mend_target(to, size);
    }
    errno = saved;
    return move;
}

/* Kernels before 5.16 cannot move pages of the pool, and have unmapped the target when they say so. Those that can
 * insist on whole huge pages, even where nothing would have to be done. */
static bool can_move_huge_pages(char *pages)
{
    size_t page = platform_page_size();
    return mremap(pages + page, page, page, 0) == MAP_FAILED;
}

/* The pages are taken where nobody looks, touched there, and moved into place last.
 *
 * - To map them is to reserve them, or to be told at once that there are too few.
 * - A reservation is not yet a page: limits of a control group, or on the nodes that a thread may use, are only
 *   looked at when it is touched, and end the process with SIGBUS. MADV_POPULATE_WRITE touches, and reports an error.
 * - The move replaces the target within one system call, so that no other thread's mmap can fall into the reservation
 *   meanwhile. MAP_FIXED at the target would do so too, but leaves a hole when it fails. */
enum platform_move platform_take_huge_pages(void *start, size_t size)
{
    int saved = errno;
    enum platform_move taken = MOVE_REFUSED;
    char *pages =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
    if (pages != MAP_FAILED) {
        if (can_move_huge_pages(pages) && madvise(pages, size, MADV_POPULATE_WRITE) == 0) {
            void *moved = mremap(pages, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, start);
            taken = moved != MAP_FAILED ? MOVE_DONE : mend_target(start, size);
        }
        if (taken != MOVE_DONE) munmap(pages, size);
    }
    errno = saved;
    return taken;
}
