// What a session may do, and what it has been told.
#include "sessions/session.h"

#include "common/fix_values.h"
#include "common/market.h"

#include <cstdio>

namespace trading
{

namespace
{

constexpr std::chrono::seconds pace_window{1};
constexpr std::size_t messages_kept = 1'000;

} // namespace

Session::Session(int index, std::size_t limit) : index_(index), name_(market::broker(index)), limit_(limit)
{
    for (int i = 0; i < market::accounts_per_broker; i++) users_[market::account(index, i)];
}

bool Session::in_sequence(const Message &message)
{
    if (message.number(Tag::sequence) != received_ + 1) return false;
    received_++;
    return true;
}

std::optional<std::string> Session::objection(const Message &message)
{
    if (!within_pace()) return "more than " + std::to_string(limit_) + " orders in a second";
    const auto user = users_.find(message.text(Tag::account));
    if (user == users_.end()) return "unknown account " + message.text(Tag::account);
    if (!order_names_.insert(message.text(Tag::order)).second) return "duplicate order name";
    if (market::partition_of(message.text(Tag::symbol), index_ + 1) != index_) return "symbol not of this session";
    user->second.orders++;
    user->second.last_seen = Clock::now();
    return {};
}

bool Session::within_pace()
{
    const Clock::time_point now = Clock::now();
    while (!recent_.empty() && now - recent_.front() > pace_window) recent_.pop_front();
    if (recent_.size() >= limit_) return false;
    recent_.push_back(now);
    return true;
}

MessagePtr Session::reject(const Message &message, std::string reason)
{
    char id[32];
    std::snprintf(id, sizeof id, "S%03d-%09d", index_ + 1, ++rejections_);
    auto report = std::make_unique<Message>(Kind::report);
    for (const Tag tag : {Tag::session, Tag::order, Tag::account, Tag::symbol, Tag::side}) report->copy(message, tag);
    report->add(Tag::order_id, "NONE");
    report->add(Tag::execution_id, id);
    report->add(Tag::execution_type, execution::rejected);
    report->add(Tag::status, status::rejected);
    report->add(Tag::price, message.has(Tag::price) ? message.number(Tag::price) : 0);
    report->add(Tag::quantity, message.has(Tag::quantity) ? message.number(Tag::quantity) : 0);
    for (const Tag tag : {Tag::last_price, Tag::last_quantity, Tag::leaves, Tag::cumulative, Tag::value})
        report->add(tag, 0);
    report->add(Tag::reason, std::move(reason));
    return report;
}

void Session::number(Message &message)
{
    message.add(Tag::sequence, ++sent_);
    told_.emplace_hint(told_.end(), sent_, message.clone());
    if (told_.size() > messages_kept) told_.erase(told_.begin());
}

} // namespace trading
