// The data manager: order flow, risk rules, matching, the journal and market data.
//
// Threads: one that reads messages from the session manager, `--threads` workers that own the
// partitions, the journal's writer, market data, and one that writes messages back.
#include "common/link.h"
#include "common/process.h"
#include "data/partition.h"

#include <iostream>
#include <memory>
#include <vector>

namespace trading
{

namespace
{

class DataManager
{
  public:
    DataManager(int partitions, int threads)
        : link_(accept_one("data.sock")), market_data_([this](MessagePtr message) { link_.send(std::move(message)); }),
          journal_("journal.sqlite", [this](MessagePtr message) { link_.send(std::move(message)); })
    {
        for (int i = 0; i < partitions; i++) partitions_.push_back(std::make_unique<Partition>(i, market_data_));
        for (int i = 0; i < threads; i++)
            workers_.push_back(std::make_unique<Worker<MessagePtr>>([this](std::list<MessagePtr> messages) {
                for (const MessagePtr &message : messages) handle(*message);
            }));
        link_.start([this](MessagePtr message) {
            const auto partition = static_cast<std::size_t>(message->number(Tag::partition));
            workers_.at(partition % workers_.size())->push(std::move(message));
        });
    }

    // From the source to the sink, so that everything under way still arrives.
    void finish()
    {
        for (auto &worker : workers_) worker->finish();
        market_data_.finish();
        journal_.finish();
        link_.close();
    }

  private:
    void handle(const Message &message)
    try {
        const auto partition = static_cast<std::size_t>(message.number(Tag::partition));
        journal_.push(partitions_.at(partition)->handle(message));
    } catch (const std::exception &error) { // a message that no session manager of ours sends
        std::cerr << "trading-data: message dropped: " << error.what() << '\n';
    }

    Link link_;
    MarketData market_data_;
    Journal journal_;
    std::vector<std::unique_ptr<Partition>> partitions_;
    std::vector<std::unique_ptr<Worker<MessagePtr>>> workers_;
};

int run(const Options &options)
{
    hold_stop_signals();
    DataManager manager(options.number("sessions"), options.number("threads"));
    wait_for_stop();
    manager.finish();
    return 0;
}

} // namespace

} // namespace trading

int main(int argc, char **argv)
{
    return trading::run_program("trading-data", [&] { return trading::run({argc, argv}); });
}
