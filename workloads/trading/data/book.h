// The order book of one symbol: orders that rest at a price, first come first served.
#pragma once

#include "data/order.h"

#include <functional>
#include <map>

namespace trading
{

struct Level {
    std::list<OrderPtr> orders;
    market::Quantity quantity = 0;
};

// The best levels of both sides at one moment.
struct Depth {
    struct Entry {
        char side;
        market::Price price;
        market::Quantity quantity;
    };
    std::list<Entry> entries; // buy then sell, best first
};

class Book
{
  public:
    // Called once for each trade, when both orders have been changed.
    using OnTrade = std::function<void(Order &aggressor, const OrderPtr &resting, market::Price, market::Quantity)>;

    // Executes `order` as far as it meets the other side; does not leave it in the book.
    void match(Order &order, const OnTrade &on_trade);
    void rest(const OrderPtr &order);
    // `order` rests in this book.
    void remove(const OrderPtr &order);

    Depth depth(int levels) const;

  private:
    template <typename Levels> void match_against(Levels &levels, Order &order, const OnTrade &on_trade);
    template <typename Levels> static void remove_from(Levels &levels, const OrderPtr &order);

    std::map<market::Price, Level, std::greater<>> bids_;
    std::map<market::Price, Level> asks_;
};

} // namespace trading
