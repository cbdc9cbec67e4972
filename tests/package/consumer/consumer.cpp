// A C++ program that uses heapfit as installed: consumer VERSION MALLOC_HOME. The headers must be C++,
// containers must work, also in a context, and an allocation that cannot be met must throw std::bad_alloc through the
// library's operator new. (MALLOC_HOME is consumer.c's business.)

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include <heapfit/heapfit.h>
#include <heapfit/pmr.hpp>

static bool containers_live_in_contexts()
{
    heapfit::defrag_dodging_resource request;
    std::pmr::vector<std::pmr::string> words(100, std::pmr::string(100, 'x'), &request);
    if (!request.context().owns(words.data()) || !request.context().owns(words.back().data())) return false;

    const heapfit::switch_to diverted(request);
    const std::vector<std::string> ordinary(100, std::string(100, 'y'));
    return request.context().owns(ordinary.back().data());
}

static bool impossible_new_throws()
{
    volatile std::size_t size = std::numeric_limits<std::ptrdiff_t>::max();
    try {
        void *block = ::operator new(size);
        ::operator delete(block);
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    if (std::strcmp(hf_version(), argv[1]) != 0) {
        std::fprintf(stderr, "heapfit is of version %s, not %s\n", hf_version(), argv[1]);
        return 1;
    }
    std::vector<std::string> words(1000, std::string(100, 'x'));
    if (words.back().size() != 100) return 1;
    if (!containers_live_in_contexts()) {
        std::fprintf(stderr, "a container does not lie in its context\n");
        return 1;
    }
    if (!impossible_new_throws()) {
        std::fprintf(stderr, "operator new did not throw std::bad_alloc\n");
        return 1;
    }
    return 0;
}
