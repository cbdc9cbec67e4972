// A partition: a group of symbols with their books, and the accounts that trade them. One thread
// handles all of a partition's messages, so nothing here needs a lock.
#pragma once

#include "data/book.h"
#include "data/journal.h"
#include "data/market_data.h"
#include "data/risk.h"

#include <string>
#include <unordered_map>

namespace trading
{

class Partition
{
  public:
    Partition(int index, MarketData &market_data);

    // Handles a new order or a cancellation. Throws BadMessage for anything else.
    Outcome handle(const Message &message);

  private:
    struct Symbol {
        Book book;
        market::Price reference_price = 0;
        int trades = 0;
    };

    Outcome accept(const Message &message);
    Outcome cancel(const Message &message);
    OrderPtr order_of(const Message &message);
    void trade(Outcome &outcome, Order &aggressor, const OrderPtr &resting, market::Price, market::Quantity);
    void report(Outcome &outcome, const Order &order, char execution, market::Price last_price = 0,
                market::Quantity last_quantity = 0, const std::string &reason = {});
    std::string next_id(char kind, int &counter) const;

    int index_;
    MarketData &market_data_;
    Rules rules_ = all_rules();
    std::unordered_map<std::string, Symbol> symbols_;
    std::unordered_map<std::string, Account> accounts_;
    std::unordered_map<std::string, OrderPtr> orders_; // of the day, by the broker's name
    int order_count_ = 0;
    int execution_count_ = 0;
};

} // namespace trading
