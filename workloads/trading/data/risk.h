// The risk rules: what is asked of an order before it may trade. Each rule is an object; an order
// must satisfy all of them, and the first that it breaks gives the reason of its rejection.
#pragma once

#include "data/order.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trading
{

// What an account has at stake in one partition.
struct Account {
    int open_orders = 0;
    market::Price open_buys = 0; // value of its resting buy orders at their limits
    std::map<std::string, market::Quantity> positions;
    std::list<market::Price> traded_values; // of the day, for the report at its end
};

struct RiskCase {
    const Order &order;
    const Account &account;
    market::Price reference_price;

    // A market order is valued at the reference price.
    market::Price price() const
    {
        return order.type == order_type::market ? reference_price : order.price;
    }
    market::Price value() const
    {
        return price() * order.quantity;
    }
};

class Rule
{
  public:
    virtual ~Rule() = default;
    virtual std::optional<std::string> objection(const RiskCase &risk) const = 0;
};

using Rules = std::vector<std::unique_ptr<const Rule>>;

Rules all_rules();
std::optional<std::string> first_objection(const Rules &rules, const RiskCase &risk);

// Keep an account's figures: an order comes to rest in the book, is executed, leaves the book.
void note_rest(Account &account, const Order &order);
void note_trade(Account &account, const Order &order, bool rested, market::Price price, market::Quantity quantity);
void note_removal(Account &account, const Order &order);

} // namespace trading
