// The market's rules, plainly.
#include "client/reference.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace trading::client
{

namespace
{

struct Known {
    Request request;
    int index;
    char status;
    market::Quantity leaves;
    market::Price value;

    bool rests() const
    {
        return status == status::open || status == status::partly_filled;
    }
};

class Reference
{
  public:
    explicit Reference(int broker)
    {
        for (int i = 0; i < market::accounts_per_broker; i++) accounts_.insert(market::account(broker, i));
        for (int i = 0; i < market::symbols_per_partition; i++)
            reference_prices_[market::symbol(broker, i)] = market::reference_price(broker, i);
    }

    void handle(const Request &request, int index)
    {
        if (accounts_.count(request.account) == 0 || !names_.insert(request.name).second)
            reject(expectation_.from_sessions, request, index);
        else if (request.cancels) cancel(request, index);
        else accept(request, index);
    }

    Expectation take()
    {
        return std::move(expectation_);
    }

  private:
    void reject(std::vector<Expected> &where, const Request &request, int index)
    {
        ReportText report{request.name,
                          {},
                          request.symbol,
                          request.side,
                          execution::rejected,
                          status::rejected,
                          request.cancels ? 0 : request.price,
                          request.cancels ? 0 : request.quantity,
                          0,
                          0,
                          0,
                          0,
                          0};
        where.push_back({report.line(), index});
    }

    bool breaks_a_rule(const Request &request) const
    {
        const market::Price reference = reference_prices_.at(request.symbol);
        const market::Price price = request.type == order_type::market ? reference : request.price;
        int open_orders = 0;
        market::Price open_buys = 0;
        for (const Known *known : resting_) {
            if (known->request.account != request.account) continue;
            open_orders++;
            if (known->request.side == side::buy) open_buys += known->request.price * known->leaves;
        }
        return request.quantity > market::largest_quantity ||
               std::abs(price - reference) * 100 > reference * market::band_percent ||
               price * request.quantity > market::largest_value || open_orders >= market::most_open_orders ||
               (request.side == side::buy && open_buys + price * request.quantity > market::largest_exposure);
    }

    void accept(const Request &request, int index)
    {
        orders_.push_back({request, index, status::open, request.quantity, 0});
        Known &order = orders_.back();
        by_name_[request.name] = &order;
        if (breaks_a_rule(request)) {
            order.status = status::rejected;
            return reject(expectation_.from_data, request, index);
        }
        report(order, execution::accepted, index);
        while (order.leaves > 0) {
            Known *other = best_for(request);
            if (other == nullptr) break;
            trade(order, *other);
        }
        if (order.leaves == 0) return;
        if (request.type == order_type::limit) {
            resting_.push_back(&order);
        } else {
            order.status = status::cancelled;
            report(order, execution::cancelled);
        }
    }

    // The resting order that `request` trades with: the best price, the first that came.
    Known *best_for(const Request &request)
    {
        const int sign = request.side == side::buy ? 1 : -1; // a lower price is better for a buyer
        Known *best = nullptr;
        for (Known *known : resting_) {
            const Request &other = known->request;
            if (other.symbol != request.symbol || other.side == request.side) continue;
            if (request.type == order_type::limit && sign * other.price > sign * request.price) continue;
            if (best == nullptr || sign * other.price < sign * best->request.price) best = known;
        }
        return best;
    }

    void trade(Known &order, Known &other)
    {
        const market::Price price = other.request.price;
        const market::Quantity quantity = std::min(order.leaves, other.leaves);
        for (Known *known : {&other, &order}) {
            known->leaves -= quantity;
            known->value += price * quantity;
            known->status = known->leaves == 0 ? status::filled : status::partly_filled;
            report(*known, execution::trade, -1, price, quantity);
        }
        if (other.leaves == 0) resting_.remove(&other);
        if (++trades_[order.request.symbol] % market::trades_per_depth == 0)
            publish(order.request.symbol, price, quantity);
    }

    void publish(const std::string &symbol, market::Price price, market::Quantity quantity)
    {
        std::map<market::Price, market::Quantity> buys, sells;
        for (const Known *known : resting_)
            if (known->request.symbol == symbol)
                (known->request.side == side::buy ? buys : sells)[known->request.price] += known->leaves;
        std::string levels;
        int left = market::depth_levels;
        for (auto level = buys.rbegin(); level != buys.rend() && left > 0; ++level, --left)
            levels += level_text(side::buy, level->first, level->second);
        left = market::depth_levels;
        for (auto level = sells.begin(); level != sells.end() && left > 0; ++level, --left)
            levels += level_text(side::sell, level->first, level->second);
        expectation_.depths[symbol].push_back(depth_line(price, quantity, levels));
    }

    void cancel(const Request &request, int index)
    {
        const auto found = by_name_.find(request.original);
        if (found == by_name_.end() || !found->second->rests()) {
            const char state = found == by_name_.end() ? status::rejected : found->second->status;
            expectation_.from_data.push_back({cancel_reject_line(request.name, request.original, state), index});
            return;
        }
        Known &order = *found->second;
        resting_.remove(&order);
        order.status = status::cancelled;
        ReportText text = text_of(order, execution::cancelled, 0, 0);
        text.name = request.name;
        text.original = request.original;
        expectation_.from_data.push_back({text.line(), index});
    }

    static ReportText text_of(const Known &order, char execution, market::Price price, market::Quantity quantity)
    {
        const Request &request = order.request;
        const market::Quantity done = request.quantity - order.leaves;
        const double average = done == 0 ? 0 : static_cast<double>(order.value) / 100.0 / static_cast<double>(done);
        return {request.name,
                {},
                request.symbol,
                request.side,
                execution,
                order.status,
                request.price,
                request.quantity,
                price,
                quantity,
                order.rests() ? order.leaves : 0,
                done,
                average};
    }

    void report(const Known &order, char execution, int answers = -1, market::Price price = 0,
                market::Quantity quantity = 0)
    {
        expectation_.from_data.push_back({text_of(order, execution, price, quantity).line(), answers});
    }

    std::set<std::string> accounts_;
    std::set<std::string> names_;
    std::map<std::string, market::Price> reference_prices_;
    std::list<Known> orders_; // of the day; nodes stay where they are
    std::map<std::string, Known *> by_name_;
    std::list<Known *> resting_; // in order of arrival
    std::map<std::string, int> trades_;
    Expectation expectation_;
};

} // namespace

std::string ReportText::line() const
{
    char numbers[256];
    std::snprintf(numbers, sizeof numbers,
                  " side %c execution %c status %c price %lld quantity %lld last %lld at %lld leaves %lld done %lld "
                  "average %.4f",
                  side, execution, status, static_cast<long long>(price), static_cast<long long>(quantity),
                  static_cast<long long>(last_quantity), static_cast<long long>(last_price),
                  static_cast<long long>(leaves), static_cast<long long>(cumulative), average);
    return "report " + name + (original.empty() ? "" : " cancels " + original) + " " + symbol + numbers;
}

std::string cancel_reject_line(const std::string &name, const std::string &original, char status)
{
    return "cancel-reject " + name + " of " + original + " status " + status;
}

std::string depth_line(market::Price last, market::Quantity quantity, const std::string &levels)
{
    return "depth " + std::to_string(quantity) + " at " + std::to_string(last) + levels;
}

std::string level_text(char side, market::Price price, market::Quantity quantity)
{
    return (side == side::buy ? " buy " : " sell ") + std::to_string(quantity) + " at " + std::to_string(price);
}

Expectation expectation_of(int broker, const std::vector<Request> &requests)
{
    Reference reference(broker);
    for (std::size_t i = 0; i < requests.size(); i++) reference.handle(requests[i], static_cast<int>(i));
    return reference.take();
}

} // namespace trading::client
