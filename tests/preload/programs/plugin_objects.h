// What plugin_host.cpp and its plugins hand to each other.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

struct Objects {
    std::vector<std::string> *names; // made by new
    unsigned char *raw;              // made by malloc
    std::size_t raw_size;
};
