// The brokers: sends orders to the middleware over real FIX sessions, checks everything that comes
// back, and says how long it took.
//
//   trading-client --port PORT --orders N --sessions N --timeout SECONDS --dictionary FILE
//                  --transcript FILE
//
// Prints `check ok` and the figures, or what was wrong and exits with 1. The transcript has every
// report that was received, broker by broker; it is the same in every run.
#include "client/broker.h"
#include "common/fix_settings.h"
#include "common/process.h"

#include <cstdio>
#include <memory>
#include <thread>

namespace trading::client
{

namespace
{

constexpr char program_name[] = "trading-client";

class Client final : public FIX::Application
{
  public:
    Client(int sessions, int orders)
    {
        Depths depths;
        for (int i = 0; i < sessions; i++) {
            // The first ones take what is left over.
            const int share = orders / sessions + (i < orders % sessions ? 1 : 0);
            brokers_.push_back(std::make_unique<Broker>(i, share));
            by_name_[brokers_.back()->name()] = brokers_.back().get();
            depths.insert(brokers_.back()->expectation().depths.begin(), brokers_.back()->expectation().depths.end());
        }
        for (auto &broker : brokers_) broker->expect_depths(depths);
    }

    FIX::SessionSettings settings(int port, const std::string &dictionary) const
    {
        FIX::SessionSettings settings;
        FIX::Dictionary defaults = session_defaults("initiator", dictionary);
        defaults.setString(FIX::SOCKET_CONNECT_HOST, "127.0.0.1");
        defaults.setInt(FIX::SOCKET_CONNECT_PORT, port);
        settings.set(defaults);
        for (const auto &broker : brokers_) settings.set(broker->session(), FIX::Dictionary());
        return settings;
    }

    // Returns the seconds that all orders took. Throws std::runtime_error if anything goes wrong.
    double trade(Broker::Clock::time_point deadline)
    {
        for (auto &broker : brokers_) {
            if (!broker->wait_until_logged_on(true, deadline)) throw std::runtime_error("no logon in time");
            broker->subscribe();
        }
        for (auto &broker : brokers_)
            if (!broker->wait_until_subscribed(deadline)) throw std::runtime_error("no market data in time");
        const auto start = Broker::Clock::now();
        std::vector<std::thread> threads;
        for (auto &broker : brokers_) threads.emplace_back([&broker, deadline] { broker->trade(deadline); });
        for (std::thread &thread : threads) thread.join();
        const std::chrono::duration<double> took = Broker::Clock::now() - start;
        return took.count();
    }

    void log_out(Broker::Clock::time_point deadline)
    {
        for (auto &broker : brokers_) {
            FIX::Session *session = FIX::Session::lookupSession(broker->session());
            session->logout();
            session->next(); // which its own thread does once a second only
        }
        for (auto &broker : brokers_) broker->wait_until_logged_on(false, deadline);
    }

    void throw_problem() const
    {
        for (const auto &broker : brokers_)
            if (const auto problem = broker->problem()) throw std::runtime_error(*problem);
    }

    std::vector<double> latencies_s() const
    {
        std::vector<double> all;
        for (const auto &broker : brokers_)
            all.insert(all.end(), broker->latencies_s().begin(), broker->latencies_s().end());
        std::sort(all.begin(), all.end());
        return all;
    }

    void write_transcript(const std::string &path) const
    {
        std::ofstream file(path);
        for (const auto &broker : brokers_) {
            // The two kinds of reports are interleaved by chance; sorted, they are the same every time.
            std::vector<std::string> lines = broker->transcript();
            std::sort(lines.begin(), lines.end());
            for (const std::string &line : lines) file << line << '\n';
        }
        if (!file.flush()) throw std::runtime_error("cannot write " + path);
    }

    void onCreate(const FIX::SessionID &) override {}
    void onLogon(const FIX::SessionID &id) override
    {
        broker_of(id).logged_on(true);
    }
    void onLogout(const FIX::SessionID &id) override
    {
        broker_of(id).logged_on(false);
    }
    void toAdmin(FIX::Message &, const FIX::SessionID &) override {}
    void toApp(FIX::Message &, const FIX::SessionID &) override {}
    void fromAdmin(const FIX::Message &, const FIX::SessionID &) override {}
    void fromApp(const FIX::Message &message, const FIX::SessionID &id) override
    {
        broker_of(id).receive(message);
    }

  private:
    Broker &broker_of(const FIX::SessionID &id)
    {
        return *by_name_.at(id.getSenderCompID().getValue());
    }

    std::vector<std::unique_ptr<Broker>> brokers_;
    std::map<std::string, Broker *> by_name_;
};

// The latency that `share` of all do not exceed.
double percentile(const std::vector<double> &sorted, double share)
{
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
    return sorted.at(std::max<std::size_t>(rank, 1) - 1);
}

void print_figures(int orders, double seconds, const std::vector<double> &latencies)
{
    std::printf("orders %d\n", orders);
    std::printf("seconds %.6f\n", seconds);
    std::printf("rate %.1f\n", orders / seconds);
    std::printf("latency p50 %.9f\n", percentile(latencies, 0.5));
    std::printf("latency p99 %.9f\n", percentile(latencies, 0.99));
    std::printf("latency p99.9 %.9f\n", percentile(latencies, 0.999));
    std::printf("check ok\n");
}

[[noreturn]] int run(const Options &options)
{
    const int orders = options.number("orders");
    Client client(options.number("sessions"), orders);
    FIX::MemoryStoreFactory store;
    const FIX::SessionSettings settings = client.settings(options.number("port"), options.text("dictionary"));
    FIX::ThreadedSocketInitiator initiator(client, store, settings);
    const auto deadline = Broker::Clock::now() + std::chrono::seconds(options.number("timeout"));
    // QuickFIX takes whole seconds to stop its threads, and they use what is on this stack: the
    // process ends from within.
    std::_Exit(run_program(program_name, [&] {
        initiator.start();
        const double seconds = client.trade(deadline);
        client.throw_problem();
        client.log_out(deadline);
        client.throw_problem(); // a report too many may have come meanwhile
        client.write_transcript(options.text("transcript"));
        print_figures(orders, seconds, client.latencies_s());
        return std::fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }));
}

} // namespace

} // namespace trading::client

int main(int argc, char **argv)
{
    using namespace trading;
    return run_program(client::program_name, [&] { return client::run({argc, argv}); });
}
