// An order as the data manager keeps it from its arrival to the end of the day.
#pragma once

#include "common/fix_values.h"
#include "common/market.h"

#include <list>
#include <memory>
#include <string>

namespace trading
{

struct Order;
using OrderPtr = std::shared_ptr<Order>;

struct Order {
    std::string session;
    std::string name; // the broker's
    std::string id;   // ours
    std::string account;
    std::string symbol;
    char side = side::buy;
    char type = order_type::limit;
    char status = status::open;
    market::Price price = 0;
    market::Quantity quantity = 0;
    market::Quantity leaves = 0;
    market::Price value = 0; // of all executions so far
    std::list<OrderPtr>::iterator place; // within its level, while it rests in the book

    market::Quantity cumulative() const
    {
        return quantity - leaves;
    }
    bool resting() const
    {
        return status == status::open || status == status::partly_filled;
    }
};

} // namespace trading
