/* What newer C libraries have under newer names, so that a library built today runs under glibc 2.28 too.
 *
 * A program is bound to the versions of the C library's functions that were there when it was linked. Most of what we call has
 * had one version for ever. The rest is here: what our shared libraries call by such a name they get from here, by the
 * linker's --wrap (cmake/HeapfitVariant.cmake), and no other file need know of it. A static library is bound when its program
 * is linked, and has none of this. tests/preload/test_old_c_libraries.py says which name is missing here.
 *
 *     had another version before 2.34, in libpthread or libdl   asked for by that, weakly: in a program that has neither of the
 *                                                               two it is NULL, and looked for again when it is called, since
 *                                                               they may have come with something that was loaded later
 *     were inline functions, or were not there                  the system call, or what they do
 *     __rseq_size, __rseq_offset of 2.35                        the dynamic linker is asked whether it has them; see there
 *     _dl_find_object of 2.35                                   the C library is, likewise
 */
#include "symbol.h"

#include "platform.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- functions that were in libraries of their own -------------------------------------------------------------------- */

static uintptr_t linker_symbol(const char *name)
{
    return kernel_mapped_symbol(getauxval(AT_BASE), name);
}

/* A thread that has one of our locks must not wait for the dynamic linker's: who holds that one may call malloc. */
static bool may_wait_for_linker(void)
{
    return !platform_lock_is_any_own();
}

struct wanted {
    const char *library; /* its file's name; NULL: one of those below */
    const char *name;
    uintptr_t address;
};

#ifdef HEAPFIT_TEST_OLD_LIBRARY /* whose functions were not there when ours was loaded */
static const char *const libraries[] = {HEAPFIT_TEST_OLD_LIBRARY};
#else
static const char *const libraries[] = {"libpthread.so.0", "libdl.so.2"};
#endif

static bool is_wanted(const struct wanted *wanted, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return false;
    if (wanted->library != NULL) return strcmp(slash + 1, wanted->library) == 0;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (strcmp(slash + 1, libraries[i]) == 0) return true;
    return false;
}

static int look_in_object(struct dl_phdr_info *object, size_t size, void *argument)
{
    (void)size;
    struct wanted *wanted = argument;
    if (!is_wanted(wanted, object->dlpi_name)) return 0;
    struct symbols symbols = symbols_of(object->dlpi_addr, object->dlpi_phdr, object->dlpi_phnum);
    wanted->address = symbol_find(&symbols, object->dlpi_addr, wanted->name);
    return wanted->address != 0;
}

static COLD uintptr_t loaded_later(const char *name)
{
    struct wanted wanted = {.name = name};
    if (may_wait_for_linker()) dl_iterate_phdr(look_in_object, &wanted);
    return wanted.address;
}

/* Defines `formerly_NAME`, which gives the function of the version that it had then, or NULL. */
#ifdef HEAPFIT_TEST_OLD_LIBRARY
#define FORMERLY(name, version)                                                                                        \
    static __typeof__(&(name)) formerly_##name(void)                                                                   \
    {                                                                                                                  \
        return (__typeof__(&(name)))loaded_later(#name);                                                               \
    }
#else
#define FORMERLY(name, version)                                                                                        \
    extern __typeof__(name) former_##name __attribute__((weak));                                                       \
    __asm__(".symver former_" #name ", " #name "@" version);                                                           \
    static __typeof__(&(name)) formerly_##name(void)                                                                   \
    {                                                                                                                  \
        return LIKELY(&former_##name != NULL) ? &former_##name : (__typeof__(&(name)))loaded_later(#name);             \
    }
#endif

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#define DLADDR1_VERSION "GLIBC_2.3.3"
#define SETROBUST_VERSION "GLIBC_2.12"
#elif defined(__aarch64__)
#define FIRST_VERSION "GLIBC_2.17"
#define DLADDR1_VERSION FIRST_VERSION
#define SETROBUST_VERSION FIRST_VERSION
#endif

FORMERLY(pthread_create, FIRST_VERSION)
FORMERLY(pthread_getspecific, FIRST_VERSION)
FORMERLY(pthread_key_create, FIRST_VERSION)
FORMERLY(pthread_setspecific, FIRST_VERSION)
FORMERLY(pthread_attr_setstacksize, FIRST_VERSION)
FORMERLY(pthread_mutexattr_init, FIRST_VERSION)
FORMERLY(pthread_mutexattr_destroy, FIRST_VERSION)
FORMERLY(pthread_mutexattr_setrobust, SETROBUST_VERSION)
FORMERLY(dlsym, FIRST_VERSION)
FORMERLY(dladdr, FIRST_VERSION)
FORMERLY(dladdr1, DLADDR1_VERSION)
FORMERLY(dlerror, FIRST_VERSION)

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    __typeof__(&pthread_create) create = formerly_pthread_create();
    return create != NULL ? create(thread, attributes, run, argument) : EAGAIN;
}

int __wrap_pthread_key_create(pthread_key_t *key, void (*destructor)(void *));
int __wrap_pthread_key_create(pthread_key_t *key, void (*destructor)(void *))
{
    __typeof__(&pthread_key_create) create = formerly_pthread_key_create();
    return create != NULL ? create(key, destructor) : EAGAIN;
}

void *__wrap_pthread_getspecific(pthread_key_t key);
void *__wrap_pthread_getspecific(pthread_key_t key)
{
    __typeof__(&pthread_getspecific) get = formerly_pthread_getspecific();
    return get != NULL ? get(key) : NULL;
}

int __wrap_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
    __typeof__(&pthread_setspecific) set = formerly_pthread_setspecific();
    return set != NULL ? set(key, value) : EINVAL;
}

int __wrap_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size);
int __wrap_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size)
{
    __typeof__(&pthread_attr_setstacksize) set = formerly_pthread_attr_setstacksize();
    return set != NULL ? set(attributes, size) : EINVAL;
}

int __wrap_pthread_mutexattr_init(pthread_mutexattr_t *attributes);
int __wrap_pthread_mutexattr_init(pthread_mutexattr_t *attributes)
{
    __typeof__(&pthread_mutexattr_init) init = formerly_pthread_mutexattr_init();
    return init != NULL ? init(attributes) : ENOSYS;
}

int __wrap_pthread_mutexattr_destroy(pthread_mutexattr_t *attributes);
int __wrap_pthread_mutexattr_destroy(pthread_mutexattr_t *attributes)
{
    __typeof__(&pthread_mutexattr_destroy) destroy = formerly_pthread_mutexattr_destroy();
    return destroy != NULL ? destroy(attributes) : ENOSYS;
}

int __wrap_pthread_mutexattr_setrobust(pthread_mutexattr_t *attributes, int robust);
int __wrap_pthread_mutexattr_setrobust(pthread_mutexattr_t *attributes, int robust)
{
    __typeof__(&pthread_mutexattr_setrobust) set = formerly_pthread_mutexattr_setrobust();
    return set != NULL ? set(attributes, robust) : ENOSYS;
}

/* Those of libdl tell by their return address which object asks: ours, as if there were nothing between. */

void *__wrap_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name)
{
    __typeof__(&dlsym) find = formerly_dlsym();
    return find != NULL ? find(handle, name) : NULL;
}

char *__wrap_dlerror(void);
char *__wrap_dlerror(void)
{
    __typeof__(&dlerror) error = formerly_dlerror();
    return error != NULL ? error() : NULL;
}

int __wrap_dladdr(const void *address, Dl_info *info);
int __wrap_dladdr(const void *address, Dl_info *info)
{
    __typeof__(&dladdr) find = formerly_dladdr();
    return find != NULL ? find(address, info) : 0;
}

int __wrap_dladdr1(const void *address, Dl_info *info, void **more, int kind);
int __wrap_dladdr1(const void *address, Dl_info *info, void **more, int kind)
{
    __typeof__(&dladdr1) find = formerly_dladdr1();
    return find != NULL ? find(address, info, more, kind) : 0;
}

/* ---- system calls ---------------------------------------------------------------------------------------------------------- */

/* Before 2.33 inline functions around others. On our processors the kernel's struct stat is the C library's. */

int __wrap_fstat(int file, struct stat *status);
int __wrap_fstat(int file, struct stat *status)
{
    return (int)platform_call(SYS_fstat, file, status);
}

int __wrap_fstatat(int folder, const char *path, struct stat *status, int flags);
int __wrap_fstatat(int folder, const char *path, struct stat *status, int flags)
{
    return (int)platform_call(SYS_newfstatat, folder, path, status, flags);
}

int __wrap_stat(const char *path, struct stat *status);
int __wrap_stat(const char *path, struct stat *status)
{
    return __wrap_fstatat(AT_FDCWD, path, status, 0);
}

ssize_t __wrap_getdents64(int folder, void *entries, size_t size); /* 2.30 */
ssize_t __wrap_getdents64(int folder, void *entries, size_t size)
{
    return platform_call(SYS_getdents64, folder, entries, size);
}

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *before); /* 2.32: was in libpthread */
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    /* On Linux it changes the mask of the calling thread alone. */
    return sigprocmask(how, set, before) == 0 ? 0 : errno;
}

/* 2.29. On x86-64 the kernel has it without a system call. */
int __wrap_getcpu(unsigned *processor, unsigned *node);
int __wrap_getcpu(unsigned *processor, unsigned *node)
{
    static _Atomic(uintptr_t) found; /* relaxed: every thread finds the same */
    enum { NONE = 1 };
    uintptr_t function = atomic_load_explicit(&found, memory_order_relaxed);
    if (UNLIKELY(function == 0)) {
        function = kernel_mapped_symbol(getauxval(AT_SYSINFO_EHDR), "__vdso_getcpu");
        if (function == 0) function = NONE;
        atomic_store_explicit(&found, function, memory_order_relaxed);
    }
    if (function == NONE) return (int)platform_call(SYS_getcpu, processor, node, NULL);
    return ((int (*)(unsigned *, unsigned *, void *))function)(processor, node, NULL);
}

/* ---- variables ------------------------------------------------------------------------------------------------------------- */

/* Where the C library has registered memory for restartable sequences: 2.35, in the dynamic linker. Until the constructor
 * has run, as in older ones: nowhere. */
ptrdiff_t __wrap___rseq_offset;
unsigned __wrap___rseq_size;

__attribute__((constructor)) static void find_rseq(void)
{
    const ptrdiff_t *offset = (const ptrdiff_t *)linker_symbol("__rseq_offset");
    const unsigned *size = (const unsigned *)linker_symbol("__rseq_size");
    if (offset == NULL || size == NULL) return;
    __wrap___rseq_offset = *offset;
    __wrap___rseq_size = *size;
}

/* ---- which object an address lies in ------------------------------------------------------------------------------------------ */

/* Without _dl_find_object the objects are gone through, under the dynamic linker's lock, which a thread that has it may take once
 * more. Who has it may call malloc (from a function of dl_iterate_phdr's). So nobody asks here while he has a lock that malloc
 * waits for; pools/chain.c learns under one that malloc only tries. In the child of a fork the lock may be that of a thread which
 * is not there, as it may be for the C library's own unwinder. */

struct asked {
    uintptr_t address;
    struct dl_find_object *found;
};

/* The dynamic linker's own description, in the list that it keeps for debuggers: only those of the first namespace are there.
 * The list does not change meanwhile, since we are called under the lock. */
static struct link_map *map_of(uintptr_t base)
{
    const struct r_debug *list = (const struct r_debug *)linker_symbol("_r_debug");
    for (struct link_map *map = list != NULL ? list->r_map : NULL; map != NULL; map = map->l_next)
        if (map->l_addr == base) return map;
    return NULL;
}

static bool holds(const struct dl_phdr_info *object, uintptr_t address)
{
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && address - object->dlpi_addr - part->p_vaddr < part->p_memsz) return true;
    }
    return false;
}

static void describe(const struct dl_phdr_info *object, struct dl_find_object *found)
{
    uintptr_t page = platform_page_size(), start = UINTPTR_MAX, end = 0;
    found->dlfo_eh_frame = NULL;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t first = object->dlpi_addr + part->p_vaddr, last = first + part->p_memsz;
        if (part->p_type == PT_GNU_EH_FRAME) found->dlfo_eh_frame = (void *)first;
        if (part->p_type != PT_LOAD) continue;
        if (first < start) start = first;
        if (last > end) end = last;
    }
    found->dlfo_map_start = (void *)(start & ~(page - 1));
    found->dlfo_map_end = (void *)end;
}

static int ask_object(struct dl_phdr_info *object, size_t size, void *argument)
{
    (void)size;
    struct asked *asked = argument;
    if (!holds(object, asked->address)) return 0;
    struct link_map *map = map_of(object->dlpi_addr);
    if (map == NULL) return -1;
    *asked->found = (struct dl_find_object){.dlfo_link_map = map};
    describe(object, asked->found);
    return 1;
}

typedef int (*find_object)(void *address, struct dl_find_object *found);

enum { OBJECT_FINDER_NONE = 1 };

/* It is the C library that has it, though the dynamic linker keeps what it looks at. So the objects are gone through once, by a
 * thread that may; 0: another one has to. */
static COLD uintptr_t object_finder(void)
{
    if (!may_wait_for_linker()) return 0;
    struct wanted wanted = {.library = "libc.so.6", .name = "_dl_find_object"};
#ifndef HEAPFIT_TEST_OLD_LIBRARY
    dl_iterate_phdr(look_in_object, &wanted);
#endif
    return wanted.address != 0 ? wanted.address : OBJECT_FINDER_NONE;
}

/* The C library's own; NULL: it has none, or that is not known yet. */
static find_object librarys_own(void)
{
    static _Atomic(uintptr_t) known; /* relaxed: every thread finds the same */
    uintptr_t function = atomic_load_explicit(&known, memory_order_relaxed);
    if (UNLIKELY(function == 0)) {
        function = object_finder();
        if (function != 0) atomic_store_explicit(&known, function, memory_order_relaxed);
    }
    return function <= OBJECT_FINDER_NONE ? NULL : (find_object)function;
}

/* While it can be found: a fork's child may never have the dynamic linker's lock. */
__attribute__((constructor)) static void find_librarys_own(void)
{
    librarys_own();
}

int __wrap__dl_find_object(void *address, struct dl_find_object *found);
int __wrap__dl_find_object(void *address, struct dl_find_object *found)
{
    find_object find = librarys_own();
    if (LIKELY(find != NULL)) return find(address, found);
    struct asked asked = {(uintptr_t)address, found};
    return dl_iterate_phdr(ask_object, &asked) == 1 ? 0 : -1;
}
