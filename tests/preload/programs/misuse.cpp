// Does the one wrong thing that its argument names, in the way of a program that knows nothing of heapfit: what is tested is
// whether a library that is preloaded notices. Ends with 0 when nobody stops it.
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
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

void twice(std::size_t size)
{
    char *object = object_of(size);
    std::free(object);
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

const std::map<std::string, void (*)()> ways{
    {"small_twice", [] { twice(100); }},
    {"large_twice", [] { twice(1000000); }},
    {"realloc_freed",
     [] {
         char *object = object_of(1000000);
         std::free(object);
         std::free(std::realloc(hidden(object), 10));
     }},
    {"inside_small", [] { std::free(hidden(object_of(96) + 16)); }},
    {"on_the_stack",
     [] {
         char buffer[64];
         std::free(hidden(buffer));
     }},
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
