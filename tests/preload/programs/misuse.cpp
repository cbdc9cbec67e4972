// Does the one wrong thing that its argument names, in the way of a program that knows nothing of heapfit: what is tested is
// whether a library that is preloaded notices. Ends with 0 when nobody stops it.
#include <dlfcn.h>
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace
{

// Hides where a pointer comes from: compilers warn of what is done here, and leave it out.
template <typename Pointer> Pointer *hidden(Pointer *pointer)
{
    Pointer *volatile copy = pointer;
    return copy;
}

char *object_of(std::size_t size)
{
    return hidden(static_cast<char *>(std::malloc(size)));
}

// C23's, which the C library may not have.
void free_sized(void *object, std::size_t size)
{
    auto function = reinterpret_cast<void (*)(void *, std::size_t)>(dlsym(RTLD_DEFAULT, "free_sized"));
    if (function != nullptr) function(object, size);
}

void twice(std::size_t size)
{
    char *object = object_of(size);
    std::free(object);
    std::free(hidden(object));
}

void twice_by_threads()
{
    char *object = object_of(100);
    std::thread([object] { std::free(object); }).join();
    std::free(hidden(object));
}

void write_after_free()
{
    std::vector<char *> objects(200);
    for (char *&object : objects) object = object_of(100);
    for (char *object : objects) {
        std::free(object);
        std::memset(hidden(object), 0x41, 8);
    }
    for (int i = 0; i < 2000; i++) object_of(100);
}

char in_static_data[64];

const std::map<std::string, void (*)()> ways{
    {"small_twice", [] { twice(100); }},
    {"large_twice", [] { twice(1000000); }},
    {"by_threads", twice_by_threads},
    {"realloc_freed",
     [] {
         char *object = object_of(1000000);
         std::free(object);
         std::free(std::realloc(hidden(object), 10));
     }},
    {"inside_small", [] { std::free(hidden(object_of(96) + 16)); }},
    {"inside_large", [] { std::free(hidden(object_of(1000000) + 500000)); }},
    {"realloc_inside", [] { std::free(std::realloc(hidden(object_of(96) + 32), 10)); }},
    {"usable_inside", [] { std::printf("%zu\n", malloc_usable_size(hidden(object_of(96) + 16))); }},
    {"on_the_stack",
     [] {
         char buffer[64];
         std::free(hidden(buffer));
     }},
    {"static_data", [] { std::free(hidden(in_static_data)); }},
    {"nonsense", [] { std::free(hidden(reinterpret_cast<char *>(8))); }},
    {"never_allocated", [] { std::free(hidden(object_of(100) + (std::size_t{1} << 20))); }},
    {"sized_free", [] { free_sized(object_of(100), 100000); }},
    {"sized_delete", [] { operator delete(hidden(operator new(100)), std::size_t{5000}); }},
    {"write_after_free", write_after_free},
};

} // namespace

int main(int count, char **words)
{
    auto way = ways.find(count == 2 ? words[1] : "");
    if (way == ways.end()) return 2;
    way->second();
    return 0;
}
