// A broker's session as the session manager knows it: its accounts, its sequence, its pace, the names
// of its orders, and what it has been told lately.
#pragma once

#include "common/message.h"

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace trading
{

class Session
{
  public:
    // `index` is the broker's, `limit` the most orders within a second.
    Session(int index, std::size_t limit);

    const std::string &name() const
    {
        return name_;
    }
    bool subscribed() const
    {
        return subscribed_;
    }
    void subscribe()
    {
        subscribed_ = true;
    }

    // Whether `message` is the next of this session; the gateway numbers them.
    bool in_sequence(const Message &message);

    // Why an order or a cancellation may not pass, if it may not.
    std::optional<std::string> objection(const Message &message);

    // The rejection of an order that does not pass.
    MessagePtr reject(const Message &message, std::string reason);

    // Numbers what goes out to the broker and keeps a copy for a while, for those who ask again.
    void number(Message &message);

  private:
    using Clock = std::chrono::steady_clock;

    struct User {
        std::int64_t orders = 0;
        Clock::time_point last_seen;
    };

    bool within_pace();

    int index_;
    std::string name_;
    std::size_t limit_;
    bool subscribed_ = false;
    std::int64_t received_ = 0;
    std::int64_t sent_ = 0;
    int rejections_ = 0;
    std::unordered_map<std::string, User> users_; // by account
    std::unordered_set<std::string> order_names_;
    std::list<Clock::time_point> recent_; // orders of the last second
    std::map<std::int64_t, MessagePtr> told_;
};

} // namespace trading
