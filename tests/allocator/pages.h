// Which pages of this process's memory the kernel has.
#ifndef HEAPFIT_TESTS_PAGES_H
#define HEAPFIT_TESTS_PAGES_H

#include "system.h"

namespace pages
{

// Of [start, start+size), whole pages of 4 KiB; one that was read alone counts.
inline size_t resident(const void *start, size_t size)
{
    std::vector<unsigned char> each(size / 4096);
    EXPECT_EQ(0, mincore(const_cast<void *>(start), size, each.data()));
    auto is_there = [](unsigned char page) { return (page & 1) != 0; };
    return static_cast<size_t>(std::count_if(each.begin(), each.end(), is_there));
}

} // namespace pages

#endif
