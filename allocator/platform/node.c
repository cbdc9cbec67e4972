/* NUMA nodes: how many there are, and on which one a thread runs. */
#define _GNU_SOURCE
#include "platform.h"

#include "c_library.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#define HAS_RSEQ 1
#endif
#endif

/* ---- how many --------------------------------------------------------------------------------------------- */

unsigned platform_nodes_in_list(const char *list)
{
    unsigned number = 0;
    bool several = false;
    for (; (*list >= '0' && *list <= '9') || *list == '-' || *list == ','; list++) {
        if (*list >= '0' && *list <= '9') {
            number = number * 10 + (unsigned)(*list - '0');
        } else {
            several = true;
            number = 0;
        }
    }
    return several ? number + 1 : 1; /* the list is in ascending order */
}

/* Nodes of memory alone are none of a thread's: `has_cpu`, not `online`. */
#define NODES_WITH_PROCESSORS "/sys/devices/system/node/has_cpu"

unsigned platform_node_count(void)
{
    char list[256];
    int saved = errno;
    /* Bare system calls: open and read are points at which a thread can be cancelled, and which other libraries
     * replace by functions that allocate. */
    long file = platform_call(SYS_openat, AT_FDCWD, NODES_WITH_PROCESSORS, O_RDONLY | O_CLOEXEC);
    long length = file >= 0 ? platform_call(SYS_read, file, list, sizeof list - 1) : 0; /* no such file: no NUMA */
    if (file >= 0) platform_call(SYS_close, file);
    errno = saved;
    list[length > 0 ? length : 0] = '\0';
    return platform_nodes_in_list(list);
}

/* ---- which one ----------------------------------------------------------------------------------------------- */

#ifdef HAS_RSEQ
/* Weak: a program linked on a newer system runs under an older C library too. */
#pragma weak __rseq_offset
#pragma weak __rseq_size

/* The kernel's struct rseq: the field node_id, which Linux has kept up to date since 6.3. */
enum { RSEQ_NODE_ID = 20, RSEQ_NODE_ID_END = 24 };
#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#endif

static const char *thread_pointer(void)
{
#if defined(__x86_64__)
    const char *self; /* clang 16 has no __builtin_thread_pointer here */
    __asm__("movq %%fs:0, %0" : "=r"(self));
    return self;
#else
    return __builtin_thread_pointer();
#endif
}

/* From the memory that the C library has registered with the kernel for restartable sequences: a load, where getcpu
 * may be a system call (on 64-bit ARM, it is). */
static bool node_from_rseq(unsigned *node)
{
    if (&__rseq_size == NULL || __rseq_size == 0 || getauxval(AT_RSEQ_FEATURE_SIZE) < RSEQ_NODE_ID_END) return false;
    const uint32_t *field = (const uint32_t *)(const void *)(thread_pointer() + __rseq_offset + RSEQ_NODE_ID);
    /* Relaxed: the kernel writes it while this thread does not run. */
    *node = __atomic_load_n(field, __ATOMIC_RELAXED);
    return true;
}
#else
static bool node_from_rseq(unsigned *node)
{
    (void)node;
    return false;
}
#endif

unsigned platform_node(void)
{
    unsigned node = 0;
    int saved = errno; /* of getauxval, too, which older kernels have nothing for */
    if (!node_from_rseq(&node) && c_library_node(&node) != 0)
        node = 0; /* forbidden by a sandbox: as if there were one */
    errno = saved;
    return node;
}
