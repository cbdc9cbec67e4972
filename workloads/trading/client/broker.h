// One broker: sends its requests over its FIX session and checks what it is told, message by message.
#pragma once

#include "client/reference.h"
#include "common/quickfix.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trading::client
{

// Depth messages go to all brokers, so that what one is told of comes from all expectations.
using Depths = std::map<std::string, std::vector<std::string>>;

class Broker
{
  public:
    using Clock = std::chrono::steady_clock;

    Broker(int index, int requests);

    const std::string &name() const
    {
        return name_;
    }
    const FIX::SessionID &session() const
    {
        return session_;
    }
    const Expectation &expectation() const
    {
        return expectation_;
    }
    void expect_depths(const Depths &depths);

    // Asks for market data; what comes back shows that the whole way there and back works.
    void subscribe();
    // Sends all requests, a bounded number of them unanswered at a time. Returns when all that is
    // expected has come, or at the deadline, or on the first thing that was not expected.
    void trade(Clock::time_point deadline);
    // Waits until the session is as wished; false at the deadline.
    bool wait_until_subscribed(Clock::time_point deadline);
    bool wait_until_logged_on(bool on, Clock::time_point deadline);

    // On QuickFIX's threads.
    void logged_on(bool on);
    void receive(const FIX::Message &message);

    // After `trade`.
    std::optional<std::string> problem() const;
    const std::vector<double> &latencies_s() const
    {
        return latencies_s_;
    }
    const std::vector<std::string> &transcript() const
    {
        return transcript_;
    }

  private:
    void send(const Request &request);
    void receive_depth(const FIX::Message &message);
    void check(const std::vector<Expected> &expected, std::size_t &next, const std::string &line);
    void check_execution_id(const std::string &id);
    void fail(const std::string &what);
    bool complete() const;

    std::string name_;
    FIX::SessionID session_;
    std::vector<Request> requests_;
    Expectation expectation_;
    Depths depths_;
    std::size_t depths_expected_ = 0;

    mutable std::mutex lock_; // guards everything below
    std::condition_variable changed_;
    bool logged_on_ = false;
    bool subscribed_ = false;
    std::size_t sent_ = 0;
    std::size_t answered_ = 0;
    std::size_t next_from_data_ = 0;
    std::size_t next_from_sessions_ = 0;
    std::size_t depths_seen_ = 0;
    std::map<std::string, std::size_t> next_depth_;
    std::set<std::string> execution_ids_;
    std::vector<Clock::time_point> sent_at_;
    std::vector<double> latencies_s_;
    std::vector<std::string> transcript_;
    std::string problem_;
};

} // namespace trading::client
