// Matching by price, then time.
#include "data/book.h"

#include <algorithm>

namespace trading
{

namespace
{

bool acceptable(const Order &order, market::Price price)
{
    if (order.type == order_type::market) return true;
    return order.side == side::buy ? price <= order.price : price >= order.price;
}

void execute(Order &order, market::Price price, market::Quantity quantity)
{
    order.leaves -= quantity;
    order.value += price * quantity;
    order.status = order.leaves == 0 ? status::filled : status::partly_filled;
}

template <typename Levels> void append(Depth &depth, const Levels &levels, char side, int most)
{
    for (const auto &[price, level] : levels) {
        if (most-- == 0) return;
        depth.entries.push_back({side, price, level.quantity});
    }
}

} // namespace

template <typename Levels> void Book::match_against(Levels &levels, Order &order, const OnTrade &on_trade)
{
    while (order.leaves > 0 && !levels.empty()) {
        const auto best = levels.begin();
        auto &[price, level] = *best;
        if (!acceptable(order, price)) return;
        const OrderPtr resting = level.orders.front();
        const market::Quantity quantity = std::min(order.leaves, resting->leaves);
        execute(order, price, quantity);
        execute(*resting, price, quantity);
        level.quantity -= quantity;
        const market::Price at = price;
        if (resting->leaves == 0) level.orders.pop_front();
        if (level.orders.empty()) levels.erase(best);
        on_trade(order, resting, at, quantity);
    }
}

void Book::match(Order &order, const OnTrade &on_trade)
{
    if (order.side == side::buy) match_against(asks_, order, on_trade);
    else match_against(bids_, order, on_trade);
}

void Book::rest(const OrderPtr &order)
{
    Level &level = order->side == side::buy ? bids_[order->price] : asks_[order->price];
    order->place = level.orders.insert(level.orders.end(), order);
    level.quantity += order->leaves;
}

template <typename Levels> void Book::remove_from(Levels &levels, const OrderPtr &order)
{
    const auto found = levels.find(order->price);
    found->second.orders.erase(order->place);
    found->second.quantity -= order->leaves;
    if (found->second.orders.empty()) levels.erase(found);
}

void Book::remove(const OrderPtr &order)
{
    if (order->side == side::buy) remove_from(bids_, order);
    else remove_from(asks_, order);
}

Depth Book::depth(int levels) const
{
    Depth depth;
    append(depth, bids_, side::buy, levels);
    append(depth, asks_, side::sell, levels);
    return depth;
}

} // namespace trading
