// The reference data, by formula.
#include "common/market.h"

#include <cstdio>

namespace trading::market
{

namespace
{

const char *const companies[symbols_per_partition] = {"ALDER", "BIRCH", "CEDAR", "HAZEL",
                                                      "LARCH", "MAPLE", "ROWAN", "TULIP"};

std::string numbered(const char *format, const char *name, int number)
{
    char text[64];
    std::snprintf(text, sizeof text, format, name, number);
    return text;
}

} // namespace

std::string broker(int index)
{
    return numbered("%s%03d", "BROKER", index + 1);
}

std::string account(int broker_index, int index)
{
    return broker(broker_index) + numbered("%s%d", "-DESK-", index + 1);
}

std::string symbol(int partition, int index)
{
    return numbered("%s.%03d", companies[index], partition + 1);
}

int partition_of(const std::string &symbol, int partitions)
{
    const std::size_t dot = symbol.rfind('.');
    if (dot == std::string::npos) return -1;
    int number = 0;
    if (std::sscanf(symbol.c_str() + dot + 1, "%d", &number) != 1) return -1;
    return number >= 1 && number <= partitions ? number - 1 : -1;
}

Price reference_price(int partition, int index)
{
    constexpr Price lowest = 2'000;
    constexpr Price spread = 8'000;
    return lowest + (partition * 1'637 + index * 971) % spread;
}

} // namespace trading::market
