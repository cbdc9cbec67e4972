// The FIX gateway: a QuickFIX acceptor towards the brokers, a link to the session manager behind it.
//
// Threads: QuickFIX's own (one that accepts, one for each session, one that keeps the time), one that
// reads from the session manager, one that writes to it, and `--threads` that build FIX messages.
#include "common/fix_settings.h"
#include "common/link.h"
#include "common/market.h"
#include "common/process.h"
#include "gateway/translate.h"

#include <iostream>
#include <unordered_map>
#include <vector>

namespace trading
{

namespace
{

class Gateway final : public FIX::Application
{
  public:
    Gateway(int sessions, int threads) : link_(connect_to("sessions.sock"))
    {
        for (int i = 0; i < threads; i++)
            workers_.push_back(std::make_unique<Worker<MessagePtr>>([this](std::list<MessagePtr> messages) {
                for (const MessagePtr &message : messages) tell(*message);
            }));
        for (int i = 0; i < sessions; i++) {
            const std::string name = market::broker(i);
            const FIX::SessionID id(begin_string, market::exchange, name);
            brokers_.emplace(name, Broker{id, 0, workers_[static_cast<std::size_t>(i) % workers_.size()].get()});
        }
        link_.start([this](MessagePtr message) {
            Broker &broker = brokers_.at(message->text(Tag::session));
            broker.worker->push(std::move(message));
        });
    }

    FIX::SessionSettings settings(int port, const std::string &dictionary) const
    {
        FIX::SessionSettings settings;
        FIX::Dictionary defaults = session_defaults("acceptor", dictionary);
        defaults.setInt(FIX::SOCKET_ACCEPT_PORT, port);
        settings.set(defaults);
        for (const auto &[name, broker] : brokers_) settings.set(broker.id, FIX::Dictionary());
        return settings;
    }

    void finish()
    {
        for (auto &worker : workers_) worker->finish();
        link_.close();
    }

    void onCreate(const FIX::SessionID &) override {}
    void onLogon(const FIX::SessionID &) override {}
    void onLogout(const FIX::SessionID &) override {}
    void toAdmin(FIX::Message &, const FIX::SessionID &) override {}
    void toApp(FIX::Message &, const FIX::SessionID &) override {}
    void fromAdmin(const FIX::Message &, const FIX::SessionID &) override {}

    // On the session's own thread.
    void fromApp(const FIX::Message &message, const FIX::SessionID &id) override
    {
        Broker &broker = brokers_.at(id.getTargetCompID().getValue());
        MessagePtr translated = from_fix(message, id.getTargetCompID().getValue());
        translated->add(Tag::sequence, ++broker.sequence);
        link_.send(std::move(translated));
    }

  private:
    struct Broker {
        FIX::SessionID id;
        std::int64_t sequence; // of its messages; touched by its session's thread alone
        Worker<MessagePtr> *worker;
    };

    void tell(const Message &message)
    try {
        FIX::Message translated = to_fix(message);
        FIX::Session::sendToTarget(translated, brokers_.at(message.text(Tag::session)).id);
    } catch (const std::exception &error) { // a message that no session manager of ours sends
        std::cerr << "trading-gateway: message dropped: " << error.what() << '\n';
    }

    Link link_;
    std::vector<std::unique_ptr<Worker<MessagePtr>>> workers_;
    std::unordered_map<std::string, Broker> brokers_; // fixed before the first thread uses it
};

int run(const Options &options)
{
    hold_stop_signals();
    Gateway gateway(options.number("sessions"), options.number("threads"));
    FIX::MemoryStoreFactory store;
    const FIX::SessionSettings settings = gateway.settings(options.number("port"), options.text("dictionary"));
    FIX::ThreadedSocketAcceptor acceptor(gateway, store, settings);
    acceptor.start();
    wait_for_stop();
    acceptor.stop(true);
    gateway.finish();
    return 0;
}

} // namespace

} // namespace trading

int main(int argc, char **argv)
{
    return trading::run_program("trading-gateway", [&] { return trading::run({argc, argv}); });
}
