// Market data: a thread that follows all trades and tells subscribers about the depth of the books.
#pragma once

#include "common/message.h"
#include "common/worker.h"
#include "data/book.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace trading
{

// One trade; with the depth of its book where it is time to publish that.
struct Tick {
    std::string symbol;
    market::Price price = 0;
    market::Quantity quantity = 0;
    std::optional<Depth> depth;
};

class MarketData
{
  public:
    using Send = std::function<void(MessagePtr)>;

    explicit MarketData(Send send);

    void push(std::unique_ptr<Tick> tick)
    {
        worker_.push(std::move(tick));
    }
    void finish()
    {
        worker_.finish();
    }

  private:
    // What is known of a symbol's trades today.
    struct Statistics {
        std::int64_t published = 0;
        market::Quantity volume = 0;
        market::Price value = 0;
        std::list<std::unique_ptr<Tick>> latest; // the last `trades_kept`
    };

    void handle(std::unique_ptr<Tick> tick);
    MessagePtr message_of(const Tick &tick, Statistics &statistics) const;

    Send send_;
    std::unordered_map<std::string, Statistics> symbols_;
    Worker<std::unique_ptr<Tick>> worker_; // last: it uses the others
};

} // namespace trading
