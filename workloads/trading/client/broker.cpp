// Sending, and checking.
#include "client/broker.h"

#include "common/fix_settings.h"

namespace trading::client
{

namespace
{

// Requests without an answer at a time: enough to keep the middleware busy, few enough that latency
// is its own and not a queue's.
constexpr std::size_t window = 32;

constexpr char all_symbols[] = "*";

template <typename FixField> auto value_of(const FIX::FieldMap &message)
{
    FixField field;
    message.getField(field);
    return field.getValue();
}

template <typename FixField> std::string text_of(const FIX::FieldMap &message)
{
    const int tag = FixField().getTag();
    return message.isSetField(tag) ? message.getField(tag) : std::string();
}

template <typename FixField> std::int64_t whole(const FIX::FieldMap &message)
{
    return std::llround(value_of<FixField>(message));
}

template <typename FixField> std::int64_t price(const FIX::FieldMap &message)
{
    return to_cents(value_of<FixField>(message));
}

std::string report_line(const FIX::Message &message)
{
    const ReportText report{
        text_of<FIX::ClOrdID>(message), text_of<FIX::OrigClOrdID>(message), text_of<FIX::Symbol>(message),
        value_of<FIX::Side>(message),   value_of<FIX::ExecType>(message),   value_of<FIX::OrdStatus>(message),
        price<FIX::Price>(message),     whole<FIX::OrderQty>(message),      price<FIX::LastPx>(message),
        whole<FIX::LastQty>(message),   whole<FIX::LeavesQty>(message),     whole<FIX::CumQty>(message),
        value_of<FIX::AvgPx>(message)};
    return report.line();
}

// The first entry is the last trade, those that follow are the book's levels.
std::string depth_text(const FIX::Message &message)
{
    FIX44::MarketDataSnapshotFullRefresh::NoMDEntries entry;
    message.getGroup(1, entry);
    const std::int64_t traded_at = price<FIX::MDEntryPx>(entry);
    const std::int64_t traded = whole<FIX::MDEntrySize>(entry);
    std::string levels;
    for (unsigned i = 2; i <= message.groupCount(FIX::FIELD::NoMDEntries); i++) {
        message.getGroup(i, entry);
        const bool buys = value_of<FIX::MDEntryType>(entry) == FIX::MDEntryType_BID;
        levels +=
            level_text(buys ? side::buy : side::sell, price<FIX::MDEntryPx>(entry), whole<FIX::MDEntrySize>(entry));
    }
    return depth_line(traded_at, traded, levels);
}

} // namespace

Broker::Broker(int index, int requests)
    : name_(market::broker(index)), session_(begin_string, name_, market::exchange),
      requests_(requests_of(index, requests)), expectation_(expectation_of(index, requests_)),
      sent_at_(requests_.size())
{
    latencies_s_.reserve(requests_.size());
}

void Broker::expect_depths(const Depths &depths)
{
    for (const auto &[symbol, lines] : depths) {
        depths_[symbol] = lines;
        depths_expected_ += lines.size();
    }
}

// ---------------------------------------------------------------- sending

void Broker::subscribe()
{
    FIX44::MarketDataRequest request(FIX::MDReqID("1"),
                                     FIX::SubscriptionRequestType(FIX::SubscriptionRequestType_SNAPSHOT_PLUS_UPDATES),
                                     FIX::MarketDepth(0));
    FIX::Session::sendToTarget(request, session_);
}

void Broker::send(const Request &request)
{
    if (request.cancels) {
        FIX44::OrderCancelRequest cancel(FIX::OrigClOrdID(request.original), FIX::ClOrdID(request.name),
                                         FIX::Side(request.side), FIX::TransactTime());
        cancel.set(FIX::Account(request.account));
        cancel.set(FIX::Symbol(request.symbol));
        FIX::Session::sendToTarget(cancel, session_);
        return;
    }
    FIX44::NewOrderSingle order(FIX::ClOrdID(request.name), FIX::Side(request.side), FIX::TransactTime(),
                                FIX::OrdType(request.type));
    order.set(FIX::Account(request.account));
    order.set(FIX::Symbol(request.symbol));
    order.set(FIX::OrderQty(static_cast<double>(request.quantity)));
    if (request.type == order_type::limit) order.set(FIX::Price(to_fix(request.price)));
    FIX::Session::sendToTarget(order, session_);
}

void Broker::trade(Clock::time_point deadline)
{
    std::unique_lock<std::mutex> hold(lock_);
    const auto failed = [this] { return !problem_.empty(); };
    const auto has_room = [&] { return failed() || sent_ - answered_ < window; };
    while (sent_ < requests_.size()) {
        if (!changed_.wait_until(hold, deadline, has_room)) return fail("no answer in time");
        if (failed()) return;
        sent_at_[sent_] = Clock::now();
        const Request &request = requests_[sent_++];
        hold.unlock();
        send(request);
        hold.lock();
    }
    if (!changed_.wait_until(hold, deadline, [&] { return failed() || complete(); })) fail("not all came in time");
}

// ---------------------------------------------------------------- waiting

bool Broker::wait_until_subscribed(Clock::time_point deadline)
{
    std::unique_lock<std::mutex> hold(lock_);
    return changed_.wait_until(hold, deadline, [this] { return subscribed_; });
}

bool Broker::wait_until_logged_on(bool on, Clock::time_point deadline)
{
    std::unique_lock<std::mutex> hold(lock_);
    return changed_.wait_until(hold, deadline, [this, on] { return logged_on_ == on; });
}

void Broker::logged_on(bool on)
{
    std::lock_guard<std::mutex> hold(lock_);
    if (logged_on_ && !on && !complete()) fail("the session has ended");
    logged_on_ = on;
    changed_.notify_all();
}

// --------------------------------------------------------------- checking

void Broker::receive(const FIX::Message &message)
{
    const std::string &type = message.getHeader().getField(FIX::FIELD::MsgType);
    if (type == FIX::MsgType_MarketDataSnapshotFullRefresh) return receive_depth(message);
    if (type == FIX::MsgType_OrderCancelReject) {
        const std::string line = cancel_reject_line(text_of<FIX::ClOrdID>(message), text_of<FIX::OrigClOrdID>(message),
                                                    value_of<FIX::OrdStatus>(message));
        std::lock_guard<std::mutex> hold(lock_);
        return check(expectation_.from_data, next_from_data_, line);
    }
    if (type != FIX::MsgType_ExecutionReport) {
        std::lock_guard<std::mutex> hold(lock_);
        return fail("message of type " + type);
    }
    const std::string id = text_of<FIX::ExecID>(message);
    const std::string line = report_line(message);
    std::lock_guard<std::mutex> hold(lock_);
    check_execution_id(id);
    if (id[0] == 'S') check(expectation_.from_sessions, next_from_sessions_, line);
    else check(expectation_.from_data, next_from_data_, line);
}

void Broker::check_execution_id(const std::string &id)
{
    if (id.empty() || !execution_ids_.insert(id).second) fail("execution id '" + id + "' for the second time");
}

void Broker::check(const std::vector<Expected> &expected, std::size_t &next, const std::string &line)
{
    if (next == expected.size()) return fail("one report too many: " + line);
    const Expected &wanted = expected[next++];
    if (line != wanted.text) return fail("got       " + line + "\n  expected  " + wanted.text);
    if (wanted.answers >= 0) {
        const std::chrono::duration<double> took = Clock::now() - sent_at_[static_cast<std::size_t>(wanted.answers)];
        latencies_s_.push_back(took.count());
        answered_++;
    }
    transcript_.push_back(line);
    changed_.notify_all();
}

void Broker::receive_depth(const FIX::Message &message)
{
    const std::string symbol = text_of<FIX::Symbol>(message);
    const std::string line = symbol == all_symbols ? std::string() : depth_text(message);
    const std::string number = text_of<FIX::MDReqID>(message);
    std::lock_guard<std::mutex> hold(lock_);
    if (symbol == all_symbols) {
        subscribed_ = true;
        return changed_.notify_all();
    }
    const auto wanted = depths_.find(symbol);
    std::size_t &next = next_depth_[symbol];
    if (wanted == depths_.end() || next == wanted->second.size()) return fail("depth of " + symbol + " not expected");
    const std::string &text = wanted->second[next++];
    if (number != std::to_string(next) || line != text)
        return fail(symbol + " number " + number + " got       " + line + "\n  number " + std::to_string(next) +
                    " expected  " + text);
    depths_seen_++;
    changed_.notify_all();
}

bool Broker::complete() const
{
    return next_from_data_ == expectation_.from_data.size() &&
           next_from_sessions_ == expectation_.from_sessions.size() && depths_seen_ == depths_expected_;
}

// The first problem counts; what follows it is its consequence.
void Broker::fail(const std::string &what)
{
    if (problem_.empty())
        problem_ = name_ + ": " + what + "\n  after " + std::to_string(sent_) + " requests, " +
                   std::to_string(next_from_data_) + " of " + std::to_string(expectation_.from_data.size()) + " and " +
                   std::to_string(next_from_sessions_) + " of " + std::to_string(expectation_.from_sessions.size()) +
                   " reports, " + std::to_string(depths_seen_) + " of " + std::to_string(depths_expected_) + " depths";
    changed_.notify_all();
}

std::optional<std::string> Broker::problem() const
{
    std::lock_guard<std::mutex> hold(lock_);
    return problem_.empty() ? std::nullopt : std::make_optional(problem_);
}

} // namespace trading::client
