// A C++ library that a C program loads with dlopen: it brings the C++ run-time library along. Returns 0 when its operators
// allocate, throw and call a new-handler as they must, else the number of the step that failed.

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace
{

volatile std::size_t too_much = static_cast<std::size_t>(PTRDIFF_MAX) + 1;
int calls;

void give_up()
{
    calls++;
    std::set_new_handler(nullptr);
}

void throw_bad_alloc()
{
    calls++;
    throw std::bad_alloc();
}

bool new_throws()
{
    try {
        operator delete(operator new(too_much));
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

} // namespace

extern "C" int plugin_check()
{
    calls = 0; // unoptimised, it has symbols that are unique in the process: then it is never really unloaded
    std::vector<std::string> strings(1000, "a string that does not fit into itself");
    if (strings[999].size() != strings[0].size()) return 1;
    if (!new_throws()) return 2;
    std::set_new_handler(give_up);
    if (!new_throws() || calls != 1) return 3;
    if (operator new(too_much, std::nothrow) != nullptr) return 4;
    std::set_new_handler(throw_bad_alloc);
    if (!new_throws() || calls != 2) return 5;
    if (operator new(too_much, std::nothrow) != nullptr || calls != 3) return 6;
    std::set_new_handler(nullptr);
    return 0;
}
