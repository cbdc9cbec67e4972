// What the shop sells: made once at the start, in ordinary memory, and then only read, by all threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct product {
    int id; // its place in the catalogue
    std::string name, category, description;
    std::vector<std::string> tags;
    std::int64_t cents;
};

// Always the same products, so that answers can be compared.
std::vector<product> make_catalogue();
