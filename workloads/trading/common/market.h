// The market's reference data: which brokers, accounts and symbols there are, and the limits that the
// risk rules apply. The middleware and the client both go by it, as both sides of a real market do.
//
// Each broker has one FIX session and one partition of the symbols that its accounts trade, so that
// the order in which a partition's orders arrive, and with it every execution, does not depend on
// which broker is faster.
#pragma once

#include <cstdint>
#include <string>

namespace trading::market
{

constexpr char exchange[] = "EXCHANGE";
constexpr int accounts_per_broker = 6;
constexpr int symbols_per_partition = 8;

// Prices are in cents, everywhere but in FIX messages.
using Price = std::int64_t;
using Quantity = std::int64_t;
constexpr double cents = 100.0;

// Risk limits.
constexpr Quantity largest_quantity = 5'000;
constexpr Price largest_value = 60'000'000;     // of one order, in cents
constexpr int band_percent = 15;                // around the reference price
constexpr int most_open_orders = 400;           // of an account
constexpr Price largest_exposure = 900'000'000; // an account's open buy orders, in cents

// Market data go out after every so many trades of a symbol.
constexpr int trades_per_depth = 8;
constexpr int depth_levels = 5;

std::string broker(int index);                  // from 0
std::string account(int broker_index, int index);
std::string symbol(int partition, int index);
// The partition of a symbol, or -1 for what is no symbol.
int partition_of(const std::string &symbol, int partitions);
Price reference_price(int partition, int index);

} // namespace trading::market
