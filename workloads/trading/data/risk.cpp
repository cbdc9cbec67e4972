// The rules, and the figures that they go by.
#include "data/risk.h"

#include <cstdlib>

namespace trading
{

namespace
{

using Objection = std::optional<std::string>;

class QuantityRule final : public Rule
{
    Objection objection(const RiskCase &risk) const override
    {
        if (risk.order.quantity >= 1 && risk.order.quantity <= market::largest_quantity) return {};
        return "quantity of " + std::to_string(risk.order.quantity) + " is outside the limits";
    }
};

class BandRule final : public Rule
{
    Objection objection(const RiskCase &risk) const override
    {
        const market::Price away = std::abs(risk.price() - risk.reference_price);
        if (away * 100 <= risk.reference_price * market::band_percent) return {};
        return "price of " + std::to_string(risk.order.price) + " is outside the band";
    }
};

class ValueRule final : public Rule
{
    Objection objection(const RiskCase &risk) const override
    {
        if (risk.value() <= market::largest_value) return {};
        return "value of " + std::to_string(risk.value()) + " is above the limit of an order";
    }
};

class OpenOrdersRule final : public Rule
{
    Objection objection(const RiskCase &risk) const override
    {
        if (risk.account.open_orders < market::most_open_orders) return {};
        return "account has " + std::to_string(risk.account.open_orders) + " open orders already";
    }
};

class ExposureRule final : public Rule
{
    Objection objection(const RiskCase &risk) const override
    {
        const market::Price open = risk.account.open_buys;
        if (risk.order.side == side::sell || open + risk.value() <= market::largest_exposure) return {};
        return "open orders of " + std::to_string(open) + " leave no room for this one";
    }
};

} // namespace

Rules all_rules()
{
    Rules rules;
    rules.push_back(std::make_unique<QuantityRule>());
    rules.push_back(std::make_unique<BandRule>());
    rules.push_back(std::make_unique<ValueRule>());
    rules.push_back(std::make_unique<OpenOrdersRule>());
    rules.push_back(std::make_unique<ExposureRule>());
    return rules;
}

std::optional<std::string> first_objection(const Rules &rules, const RiskCase &risk)
{
    for (const auto &rule : rules)
        if (Objection objection = rule->objection(risk)) return objection;
    return {};
}

void note_rest(Account &account, const Order &order)
{
    account.open_orders++;
    if (order.side == side::buy) account.open_buys += order.price * order.leaves;
}

void note_trade(Account &account, const Order &order, bool rested, market::Price price, market::Quantity quantity)
{
    account.positions[order.symbol] += order.side == side::buy ? quantity : -quantity;
    account.traded_values.push_back(price * quantity);
    if (!rested) return;
    if (order.side == side::buy) account.open_buys -= order.price * quantity;
    if (order.leaves == 0) account.open_orders--;
}

void note_removal(Account &account, const Order &order)
{
    account.open_orders--;
    if (order.side == side::buy) account.open_buys -= order.price * order.leaves;
}

} // namespace trading
