// What the brokers send.
#include "client/reference.h"

#include <cstdio>
#include <random>

namespace trading::client
{

namespace
{

// In percent of all requests; the rest are limit orders.
constexpr unsigned cancellations = 14;
constexpr unsigned market_orders = 7;
constexpr unsigned out_of_band = 1;
constexpr unsigned too_large = 1;
constexpr unsigned unknown_accounts = 1;
constexpr unsigned duplicates = 1;

// Limits are up to so many cents on either side of the reference price; buyers and sellers overlap.
constexpr unsigned spread = 60;
constexpr unsigned overlap = 25;
constexpr market::Quantity lot = 100;
constexpr unsigned most_lots = 12;

class Generator
{
  public:
    explicit Generator(int broker) : broker_(broker), random_(static_cast<unsigned>(broker) + 1) {}

    Request next(const std::vector<Request> &before)
    {
        Request request = any_order(static_cast<int>(before.size()));
        unsigned dice = below(100);
        if (before.empty()) return request;
        const auto chosen = [&dice](unsigned share) {
            const bool is = dice < share;
            dice -= is ? 0 : share;
            return is;
        };
        if (chosen(cancellations)) return cancellation(request, before[below(before.size())]);
        if (chosen(market_orders)) {
            request.type = order_type::market;
            request.price = 0;
        } else if (chosen(out_of_band)) {
            request.price *= 2;
        } else if (chosen(too_large)) {
            request.quantity = market::largest_quantity + lot;
        } else if (chosen(unknown_accounts)) {
            request.account = market::broker(broker_) + "-NOBODY";
        } else if (chosen(duplicates)) {
            request.name = before[below(before.size())].name;
        }
        return request;
    }

  private:
    unsigned below(std::size_t limit)
    {
        return static_cast<unsigned>(random_() % limit);
    }

    std::string name(int number) const
    {
        char text[48];
        std::snprintf(text, sizeof text, "%s-%08d", market::broker(broker_).c_str(), number + 1);
        return text;
    }

    Request any_order(int number)
    {
        Request request;
        request.name = name(number);
        request.account = market::account(broker_, static_cast<int>(below(market::accounts_per_broker)));
        const int symbol = static_cast<int>(below(market::symbols_per_partition));
        request.symbol = market::symbol(broker_, symbol);
        request.side = below(2) == 0 ? side::buy : side::sell;
        const auto away = static_cast<market::Price>(below(spread)) - static_cast<market::Price>(overlap);
        const market::Price reference = market::reference_price(broker_, symbol);
        request.price = request.side == side::buy ? reference - away : reference + away;
        request.quantity = lot * (1 + static_cast<market::Quantity>(below(most_lots)));
        return request;
    }

    static Request cancellation(const Request &fresh, const Request &original)
    {
        Request request = original;
        request.cancels = true;
        request.name = fresh.name;
        request.account = fresh.account;
        request.original = original.name;
        return request;
    }

    int broker_;
    std::mt19937 random_;
};

} // namespace

std::vector<Request> requests_of(int broker, int count)
{
    Generator generator(broker);
    std::vector<Request> requests;
    while (static_cast<int>(requests.size()) < count) requests.push_back(generator.next(requests));
    return requests;
}

} // namespace trading::client
