// A second, plain implementation of the market's rules: what the client expects to be told.
//
// It shares the reference data and limits with the middleware, and no code: orders in one list, the
// best one found by looking at all of them. What is slow and obvious checks what is fast.
#pragma once

#include "common/fix_values.h"
#include "common/market.h"

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

namespace trading::client
{

struct Request {
    bool cancels = false;
    std::string name;
    std::string original; // of a cancellation
    std::string account;
    std::string symbol;
    char side = side::buy;
    char type = order_type::limit;
    market::Price price = 0;
    market::Quantity quantity = 0;
};

// A report, as far as it can be foreseen. `text` has every value of it, in one line.
struct Expected {
    std::string text;
    int answers = -1; // the request whose first answer this is; -1: none's
};

// What one broker is told about its orders. Reports of the data manager come in one order, those of the
// session manager (which rejects what must not pass) in another; the two are not ordered with respect
// to each other.
struct Expectation {
    std::vector<Expected> from_data;
    std::vector<Expected> from_sessions;
    std::map<std::string, std::vector<std::string>> depths; // by symbol, in order
};

// The one-line form of a report or of a depth message, made from what a FIX message says.
struct ReportText {
    std::string name;
    std::string original;
    std::string symbol;
    char side;
    char execution;
    char status;
    market::Price price;
    market::Quantity quantity;
    market::Price last_price;
    market::Quantity last_quantity;
    market::Quantity leaves;
    market::Quantity cumulative;
    double average;
    std::string line() const;
};
std::string cancel_reject_line(const std::string &name, const std::string &original, char status);
std::string depth_line(market::Price last, market::Quantity quantity, const std::string &levels);
std::string level_text(char side, market::Price price, market::Quantity quantity);

// The requests of one broker: mostly limit orders around the reference price, some orders at market,
// cancellations, and a few that must be rejected. The same for the same arguments, everywhere.
std::vector<Request> requests_of(int broker, int count);

Expectation expectation_of(int broker, const std::vector<Request> &requests);

} // namespace trading::client
