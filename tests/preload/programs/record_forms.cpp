// Each form of allocating and freeing, once, with a size of its own: the kinds by which a recording must have it, its alignment
// and its size are printed. Then each form once more with more than there can be, and a realloc.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <malloc.h>
#include <new>

extern "C" {
__attribute__((weak)) void free_sized(void *pointer, std::size_t size);
__attribute__((weak)) void free_aligned_sized(void *pointer, std::size_t alignment, std::size_t size);
}

namespace
{

constexpr auto aligned = std::align_val_t{256};
volatile std::size_t too_much = static_cast<std::size_t>(PTRDIFF_MAX) + 1;

// As docs/trace-format.md numbers them.
enum kind { FREE, MALLOC, CALLOC, REALLOC, ALIGNED, NEW, NEW_ALIGNED, DELETE };

struct form {
    kind born, freed;
    std::size_t alignment;
    std::function<void *(std::size_t)> allocate;
    std::function<void(void *, std::size_t)> release;
};

#define FREED [](void *p, std::size_t) { free(p); }
#define DELETED(...) [](void *p, [[maybe_unused]] std::size_t size) { __VA_ARGS__; }
#define OF(...) [](std::size_t n) -> void * { return __VA_ARGS__; }

const form forms[] = {
    {MALLOC, FREE, 0, OF(malloc(n)), FREED},
    {CALLOC, FREE, 0, OF(calloc(1, n)), FREED},
    {CALLOC, FREE, 0, OF(calloc(n, 1)), FREED},
    {MALLOC, FREE, 0, OF(realloc(nullptr, n)), FREED},
    {MALLOC, FREE, 0, OF(reallocarray(nullptr, n, 1)), FREED},
    {ALIGNED, FREE, 64, OF(aligned_alloc(64, n)), FREED},
    {ALIGNED, FREE, 128, OF(memalign(128, n)), FREED},
    {ALIGNED, FREE, 4096, OF(valloc(n)), FREED},
    {ALIGNED, FREE, 4096, OF(pvalloc(n)), FREED},
    {ALIGNED, FREE, 32,
     [](std::size_t n) {
         void *object = nullptr;
         return posix_memalign(&object, 32, n) == 0 ? object : nullptr;
     },
     FREED},
    {MALLOC, FREE, 0, OF(malloc(n)), DELETED(free_sized != nullptr ? free_sized(p, size) : free(p))},
    {ALIGNED, FREE, 64, OF(aligned_alloc(64, n)),
     DELETED(free_aligned_sized != nullptr ? free_aligned_sized(p, 64, size) : free(p))},
    {NEW, DELETE, 0, OF(operator new(n)), DELETED(operator delete(p))},
    {NEW, DELETE, 0, OF(operator new[](n)), DELETED(operator delete[](p))},
    {NEW, DELETE, 0, OF(operator new(n)), DELETED(operator delete(p, size))},
    {NEW, DELETE, 0, OF(operator new[](n)), DELETED(operator delete[](p, size))},
    {NEW, DELETE, 0, OF(operator new(n, std::nothrow)), DELETED(operator delete(p, std::nothrow))},
    {NEW, DELETE, 0, OF(operator new[](n, std::nothrow)), DELETED(operator delete[](p, std::nothrow))},
    {NEW_ALIGNED, DELETE, 256, OF(operator new(n, aligned)), DELETED(operator delete(p, aligned))},
    {NEW_ALIGNED, DELETE, 256, OF(operator new[](n, aligned)), DELETED(operator delete[](p, aligned))},
    {NEW_ALIGNED, DELETE, 256, OF(operator new(n, aligned)), DELETED(operator delete(p, size, aligned))},
    {NEW_ALIGNED, DELETE, 256, OF(operator new[](n, aligned)), DELETED(operator delete[](p, size, aligned))},
    {NEW_ALIGNED, DELETE, 256, OF(operator new(n, aligned, std::nothrow)),
     DELETED(operator delete(p, aligned, std::nothrow))},
    {NEW_ALIGNED, DELETE, 256, OF(operator new[](n, aligned, std::nothrow)),
     DELETED(operator delete[](p, aligned, std::nothrow))},
};

// A new-handler makes room and leaves by a throw of its own.
struct derived : std::bad_alloc {
};
void make_room()
{
    free(malloc(50));
    throw derived();
}

bool fails(const form &form)
{
    try {
        return form.allocate(too_much) == nullptr;
    } catch (const derived &) {
        return true;
    }
}

} // namespace

int main()
{
    std::size_t size = 1000000;
    for (const form &form : forms) {
        void *object = form.allocate(++size);
        form.release(object, size);
        std::printf("%d %d %zu %zu %zx\n", form.born, form.freed, form.alignment, size,
                    reinterpret_cast<std::uintptr_t>(object));
    }
    std::set_new_handler(make_room);
    for (const form &form : forms)
        if (!fails(form)) return 1;
}
