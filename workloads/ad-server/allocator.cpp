// Which allocator it is, told by the functions that it has.
#include "allocator.hpp"

#include <type_traits>

#include <dlfcn.h>

namespace
{

// The function of this name in the process, or NULL.
template <class Function> Function *look_up(const char *name)
{
    return reinterpret_cast<Function *>(::dlsym(RTLD_DEFAULT, name));
}

std::size_t (*heapfit_shrink)();
int (*jemalloc_control)(const char *, void *, std::size_t *, void *, std::size_t);
void (*tcmalloc_release)();
void (*mimalloc_collect)(bool);
int (*tbbmalloc_command)(int, void *);
int (*glibc_trim)(std::size_t);

void jemalloc_purge()
{
    jemalloc_control("arena.4096.purge", nullptr, nullptr, nullptr, 0); // MALLCTL_ARENAS_ALL
}

void tbbmalloc_clean()
{
    tbbmalloc_command(0, nullptr); // TBBMALLOC_CLEAN_ALL_BUFFERS
}

} // namespace

footprint::footprint()
{
    if ((heapfit_shrink = look_up<std::size_t()>("hf_footprint_shrink")) != nullptr) {
        means_ = "hf_footprint_shrink";
        shrink_ = [] { heapfit_shrink(); };
        restore_ = look_up<void()>("hf_footprint_restore");
        return;
    }
    if ((jemalloc_control = look_up<std::remove_pointer_t<decltype(jemalloc_control)>>("mallctl")) != nullptr) {
        means_ = "mallctl";
        shrink_ = jemalloc_purge;
    } else if ((tcmalloc_release = look_up<void()>("MallocExtension_ReleaseFreeMemory")) != nullptr) {
        means_ = "MallocExtension_ReleaseFreeMemory";
        shrink_ = tcmalloc_release;
    } else if ((mimalloc_collect = look_up<void(bool)>("mi_collect")) != nullptr) {
        means_ = "mi_collect";
        shrink_ = [] { mimalloc_collect(true); };
    } else if ((tbbmalloc_command = look_up<int(int, void *)>("scalable_allocation_command")) != nullptr) {
        means_ = "scalable_allocation_command";
        shrink_ = tbbmalloc_clean;
    } else if ((glibc_trim = look_up<int(std::size_t)>("malloc_trim")) != nullptr) {
        means_ = "malloc_trim";
        shrink_ = [] { glibc_trim(0); };
    }
    restore_ = shrink_;
}

void footprint::shrink() const
{
    if (shrink_ != nullptr) shrink_();
}

void footprint::restore() const
{
    if (restore_ != nullptr) restore_();
}

contexts::contexts()
{
    create_ = look_up<hf_context *(const void *)>("hf_context_create");
    free_all_ = look_up<void(hf_context *)>("hf_context_free_all");
    destroy_ = look_up<void(hf_context *)>("hf_context_destroy");
    switch_ = look_up<hf_context *(hf_context *)>("hf_context_switch");
}
