// Statistics of trades, and depth messages.
#include "data/market_data.h"

namespace trading
{

namespace
{

constexpr std::size_t trades_kept = 100;

} // namespace

MarketData::MarketData(Send send)
    : send_(std::move(send)), worker_([this](std::list<std::unique_ptr<Tick>> ticks) {
          for (auto &tick : ticks) handle(std::move(tick));
      })
{
}

void MarketData::handle(std::unique_ptr<Tick> tick)
{
    Statistics &statistics = symbols_[tick->symbol];
    statistics.volume += tick->quantity;
    statistics.value += tick->price * tick->quantity;
    if (tick->depth) send_(message_of(*tick, statistics));
    statistics.latest.push_back(std::move(tick));
    if (statistics.latest.size() > trades_kept) statistics.latest.pop_front();
}

MessagePtr MarketData::message_of(const Tick &tick, Statistics &statistics) const
{
    auto message = std::make_unique<Message>(Kind::depth);
    message->add(Tag::symbol, tick.symbol);
    message->add(Tag::sequence, ++statistics.published);
    message->add(Tag::last_price, tick.price);
    message->add(Tag::last_quantity, tick.quantity);
    message->add(Tag::cumulative, statistics.volume);
    message->add(Tag::value, statistics.value);
    for (const Depth::Entry &entry : tick.depth->entries) {
        message->add(Tag::level_side, entry.side);
        message->add(Tag::level_price, entry.price);
        message->add(Tag::level_quantity, entry.quantity);
    }
    return message;
}

} // namespace trading
