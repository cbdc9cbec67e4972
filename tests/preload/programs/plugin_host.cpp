// Loads C++ plugins in turn, has each make objects on its own threads, closes it, and only then frees what it made.
#include "plugin_objects.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace
{

constexpr int rounds = 40;

std::uint64_t sum_of(const Objects &objects)
{
    std::uint64_t sum = 0;
    for (const std::string &name : *objects.names)
        for (char letter : name) sum = sum * 31 + static_cast<unsigned char>(letter);
    for (std::size_t i = 0; i < objects.raw_size; i++) sum = sum * 3 + objects.raw[i];
    return sum;
}

void drop(const Objects &objects)
{
    delete objects.names;
    std::free(objects.raw);
}

} // namespace

int main(int count, char **arguments)
{
    if (count < 2) return 2;
    std::uint64_t sum = 0;
    std::vector<Objects> kept;
    for (int round = 0; round < rounds; round++) {
        void *plugin = dlopen(arguments[1 + round % (count - 1)], RTLD_NOW | RTLD_LOCAL);
        auto make = plugin == nullptr ? nullptr : reinterpret_cast<Objects (*)(int)>(dlsym(plugin, "make_objects"));
        if (make == nullptr) return 1;
        kept.push_back(make(round));
        dlclose(plugin);
        if (dlopen(arguments[1 + round % (count - 1)], RTLD_NOW | RTLD_NOLOAD) != nullptr) return 3;
        if (round < 2) continue;
        // By this thread, or by one that has never allocated before.
        Objects oldest = kept[static_cast<std::size_t>(round - 2)];
        sum += sum_of(oldest);
        if (round % 2 == 0) drop(oldest);
        else std::thread(drop, oldest).join();
    }
    for (std::size_t i = kept.size() - 2; i < kept.size(); i++) {
        sum += sum_of(kept[i]);
        drop(kept[i]);
    }
    std::printf("%016llx\n", static_cast<unsigned long long>(sum));
    return 0;
}
