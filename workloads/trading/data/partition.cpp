// The life of an order: risk rules, matching, reports.
#include "data/partition.h"

#include <cstdio>

namespace trading
{

Partition::Partition(int index, MarketData &market_data) : index_(index), market_data_(market_data)
{
    for (int i = 0; i < market::symbols_per_partition; i++)
        symbols_[market::symbol(index, i)].reference_price = market::reference_price(index, i);
}

Outcome Partition::handle(const Message &message)
{
    switch (message.kind()) {
    case Kind::new_order:
        return accept(message);
    case Kind::cancel:
        return cancel(message);
    default:
        throw BadMessage("a partition handles orders and cancellations only");
    }
}

OrderPtr Partition::order_of(const Message &message)
{
    OrderPtr order(new Order);
    order->session = message.text(Tag::session);
    order->name = message.text(Tag::order);
    order->id = next_id('O', order_count_);
    order->account = message.text(Tag::account);
    order->symbol = message.text(Tag::symbol);
    order->side = static_cast<char>(message.number(Tag::side));
    order->type = static_cast<char>(message.number(Tag::order_type));
    order->price = message.has(Tag::price) ? message.number(Tag::price) : 0;
    order->quantity = message.number(Tag::quantity);
    order->leaves = order->quantity;
    return order;
}

Outcome Partition::accept(const Message &message)
{
    Outcome outcome;
    const OrderPtr order = order_of(message);
    orders_.emplace(order->name, order);
    Symbol &symbol = symbols_.at(order->symbol);
    Account &account = accounts_[order->account];
    if (const auto objection = first_objection(rules_, {*order, account, symbol.reference_price})) {
        order->status = status::rejected;
        order->leaves = 0;
        report(outcome, *order, execution::rejected, 0, 0, *objection);
        return outcome;
    }
    report(outcome, *order, execution::accepted);
    symbol.book.match(*order, [&](Order &aggressor, const OrderPtr &resting, market::Price price,
                                  market::Quantity quantity) { trade(outcome, aggressor, resting, price, quantity); });
    if (order->leaves == 0) return outcome;
    if (order->type == order_type::market) {
        order->status = status::cancelled;
        report(outcome, *order, execution::cancelled);
        return outcome;
    }
    symbol.book.rest(order);
    note_rest(account, *order);
    return outcome;
}

Outcome Partition::cancel(const Message &message)
{
    Outcome outcome;
    const auto found = orders_.find(message.text(Tag::original));
    if (found == orders_.end() || !found->second->resting()) {
        auto reject = std::make_unique<Message>(Kind::cancel_reject);
        for (const Tag tag : {Tag::session, Tag::order, Tag::original}) reject->copy(message, tag);
        reject->add(Tag::status, found == orders_.end() ? status::rejected : found->second->status);
        outcome.messages.push_back(std::move(reject));
        return outcome;
    }
    const OrderPtr order = found->second;
    symbols_.at(order->symbol).book.remove(order);
    note_removal(accounts_[order->account], *order);
    order->status = status::cancelled;
    report(outcome, *order, execution::cancelled);
    outcome.messages.back()->copy(message, Tag::original);
    outcome.messages.back()->remove(Tag::order);
    outcome.messages.back()->copy(message, Tag::order);
    return outcome;
}

void Partition::trade(Outcome &outcome, Order &aggressor, const OrderPtr &resting, market::Price price,
                      market::Quantity quantity)
{
    note_trade(accounts_[resting->account], *resting, true, price, quantity);
    note_trade(accounts_[aggressor.account], aggressor, false, price, quantity);
    report(outcome, *resting, execution::trade, price, quantity);
    report(outcome, aggressor, execution::trade, price, quantity);
    Symbol &symbol = symbols_.at(aggressor.symbol);
    const bool publish = ++symbol.trades % market::trades_per_depth == 0;
    auto tick = std::make_unique<Tick>();
    tick->symbol = aggressor.symbol;
    tick->price = price;
    tick->quantity = quantity;
    if (publish) tick->depth = symbol.book.depth(market::depth_levels);
    market_data_.push(std::move(tick));
}

void Partition::report(Outcome &outcome, const Order &order, char execution, market::Price last_price,
                       market::Quantity last_quantity, const std::string &reason)
{
    const std::string id = next_id('E', execution_count_);
    const market::Quantity leaves = order.resting() ? order.leaves : 0;
    auto message = std::make_unique<Message>(Kind::report);
    message->add(Tag::session, order.session);
    message->add(Tag::order, order.name);
    message->add(Tag::order_id, order.id);
    message->add(Tag::execution_id, id);
    message->add(Tag::account, order.account);
    message->add(Tag::symbol, order.symbol);
    message->add(Tag::side, order.side);
    message->add(Tag::execution_type, execution);
    message->add(Tag::status, order.status);
    message->add(Tag::price, order.price);
    message->add(Tag::quantity, order.quantity);
    message->add(Tag::last_price, last_price);
    message->add(Tag::last_quantity, last_quantity);
    message->add(Tag::leaves, leaves);
    message->add(Tag::cumulative, order.status == status::rejected ? 0 : order.cumulative());
    message->add(Tag::value, order.value);
    if (!reason.empty()) message->add(Tag::reason, reason);
    outcome.messages.push_back(std::move(message));
    outcome.entries.emplace_back(new Outcome::Entry{id, order.id, order.session, order.name, order.account,
                                                    order.symbol, order.side, execution, order.status, order.price,
                                                    order.quantity, last_price, last_quantity, reason});
}

std::string Partition::next_id(char kind, int &counter) const
{
    char text[32];
    std::snprintf(text, sizeof text, "%c%03d-%09d", kind, index_ + 1, ++counter);
    return text;
}

} // namespace trading
