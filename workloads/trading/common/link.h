// A connection between two of the processes: a Unix socket, a thread that reads messages from it, and
// a thread that writes messages to it.
#pragma once

#include "common/message.h"
#include "common/worker.h"

#include <functional>
#include <list>
#include <string>
#include <thread>

namespace trading
{

// Owns a file descriptor.
class Descriptor
{
  public:
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor &&other) noexcept : number_(other.number_)
    {
        other.number_ = -1;
    }
    Descriptor &operator=(Descriptor &&) = delete;
    ~Descriptor();

    int number() const
    {
        return number_;
    }

  private:
    int number_;
};

// Both wait for a bounded time and throw std::system_error or std::runtime_error if the peer does not
// come. Paths are relative to the working folder: a Unix socket's path must be short.
Descriptor accept_one(const std::string &path);
Descriptor connect_to(const std::string &path);

class Link
{
  public:
    // Called on the reading thread. A peer that goes away ends the reading and nothing more: the
    // supervisor decides what then happens.
    using Handler = std::function<void(MessagePtr)>;

    explicit Link(Descriptor socket);
    ~Link()
    {
        close();
    }
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;

    // Begins to read: once, when all that `handle` uses is there.
    void start(Handler handle);

    // From any thread; messages of one thread keep their order.
    void send(MessagePtr message)
    {
        writer_.push(std::move(message));
    }

    // Ends both threads; what has been sent is written first.
    void close();

  private:
    void read();
    void write(const std::list<MessagePtr> &messages);

    Descriptor socket_;
    Handler handle_;
    Worker<MessagePtr> writer_;
    std::thread reader_; // runs from `start` to `close`
};

} // namespace trading
