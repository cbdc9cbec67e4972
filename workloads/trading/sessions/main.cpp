// The session manager: knows which sessions and accounts there are, keeps them to their sequence and
// pace, and passes messages between the gateway and the data manager.
//
// Threads: one that reads from each neighbour, one that writes to each, and `--threads` workers that
// own the sessions.
#include "common/link.h"
#include "common/market.h"
#include "common/process.h"
#include "sessions/session.h"

#include <iostream>
#include <memory>
#include <unordered_map>
#include <vector>

namespace trading
{

namespace
{

// The sessions of one worker thread, which alone touches them.
class Desk
{
  public:
    Desk(Link &gateway, Link &data) : gateway_(gateway), data_(data) {}

    void add(int index, std::size_t limit)
    {
        names_.push_back(market::broker(index));
        sessions_.emplace(names_.back(), Desk::Entry{Session(index, limit), index});
    }

    void handle(MessagePtr message)
    try {
        switch (message->kind()) {
        case Kind::subscribe:
            return subscribe(*message);
        case Kind::new_order:
        case Kind::cancel:
            return pass_in(std::move(message));
        case Kind::depth:
            return publish(*message);
        default:
            return pass_out(std::move(message));
        }
    } catch (const std::exception &error) { // a message that no neighbour of ours sends
        std::cerr << "trading-sessions: message dropped: " << error.what() << '\n';
    }

  private:
    struct Entry {
        Session session;
        int partition;
    };

    Entry &entry_of(const Message &message)
    {
        return sessions_.at(message.text(Tag::session));
    }

    void subscribe(const Message &message)
    {
        Session &session = entry_of(message).session;
        if (!session.in_sequence(message)) throw BadMessage("out of sequence from " + session.name());
        session.subscribe();
        auto answer = std::make_unique<Message>(Kind::subscribed);
        answer->copy(message, Tag::session);
        gateway_.send(std::move(answer));
    }

    void pass_in(MessagePtr message)
    {
        auto &[session, partition] = entry_of(*message);
        if (!session.in_sequence(*message)) throw BadMessage("out of sequence from " + session.name());
        if (auto objection = session.objection(*message)) {
            MessagePtr report = session.reject(*message, std::move(*objection));
            session.number(*report);
            gateway_.send(std::move(report));
            return;
        }
        message->add(Tag::partition, partition);
        data_.send(std::move(message));
    }

    void pass_out(MessagePtr message)
    {
        entry_of(*message).session.number(*message);
        gateway_.send(std::move(message));
    }

    void publish(const Message &message)
    {
        for (const std::string &name : names_) {
            if (!sessions_.at(name).session.subscribed()) continue;
            MessagePtr copy = message.clone();
            copy->add(Tag::session, name);
            gateway_.send(std::move(copy));
        }
    }

    Link &gateway_;
    Link &data_;
    std::vector<std::string> names_;
    std::unordered_map<std::string, Entry> sessions_;
};

class SessionManager
{
  public:
    SessionManager(int sessions, int threads, int limit)
        : data_(connect_to("data.sock")), gateway_(accept_one("sessions.sock"))
    {
        for (int i = 0; i < threads; i++) desks_.push_back(std::make_unique<Desk>(gateway_, data_));
        for (int i = 0; i < sessions; i++) {
            const std::size_t desk = static_cast<std::size_t>(i) % desks_.size();
            desks_[desk]->add(i, static_cast<std::size_t>(limit));
            desk_of_.emplace(market::broker(i), desk);
        }
        for (auto &desk : desks_)
            workers_.push_back(std::make_unique<Worker<MessagePtr>>([&desk](std::list<MessagePtr> messages) {
                for (MessagePtr &message : messages) desk->handle(std::move(message));
            }));
        data_.start([this](MessagePtr message) { route(std::move(message)); });
        gateway_.start([this](MessagePtr message) { route(std::move(message)); });
    }

    void finish()
    {
        for (auto &worker : workers_) worker->finish();
        data_.close();
        gateway_.close();
    }

  private:
    void route(MessagePtr message)
    {
        if (message->kind() == Kind::depth) {
            for (auto &worker : workers_) worker->push(message->clone());
            return;
        }
        const auto found = desk_of_.find(message->text(Tag::session));
        if (found == desk_of_.end()) throw BadMessage("unknown session " + message->text(Tag::session));
        workers_[found->second]->push(std::move(message));
    }

    Link data_;
    Link gateway_;
    std::vector<std::unique_ptr<Desk>> desks_; // one for each worker
    std::unordered_map<std::string, std::size_t> desk_of_;
    std::vector<std::unique_ptr<Worker<MessagePtr>>> workers_;
};

int run(const Options &options)
{
    hold_stop_signals();
    SessionManager manager(options.number("sessions"), options.number("threads"), options.number("limit"));
    wait_for_stop();
    manager.finish();
    return 0;
}

} // namespace

} // namespace trading

int main(int argc, char **argv)
{
    return trading::run_program("trading-sessions", [&] { return trading::run({argc, argv}); });
}
