// A C++ program of which nothing but operator new and its failure is left: linked statically, nobody else asks the C++
// run-time library for what throwing std::bad_alloc needs.

#include <cstddef>
#include <cstdint>
#include <new>

int main()
{
    volatile std::size_t too_much = static_cast<std::size_t>(PTRDIFF_MAX) + 1;
    try {
        operator delete(operator new(too_much));
    } catch (const std::bad_alloc &) {
        return 0;
    }
    return 1;
}
