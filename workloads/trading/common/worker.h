// A thread that handles what is pushed to it, in order, until it is closed and its queue is empty.
#pragma once

#include "common/queue.h"

#include <functional>
#include <list>
#include <thread>
#include <utility>

namespace trading
{

template <typename Item> class Worker
{
  public:
    // `handle` is called on the worker's thread with all that has arrived since its last call.
    using Handler = std::function<void(std::list<Item>)>;

    explicit Worker(Handler handle) : handle_(std::move(handle)), thread_([this] { run(); }) {}
    ~Worker()
    {
        finish();
    }
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;

    void push(Item item)
    {
        queue_.push(std::move(item));
    }

    // Handles what is left and ends the thread. Called by one thread only.
    void finish()
    {
        queue_.close();
        if (thread_.joinable()) thread_.join();
    }

  private:
    void run()
    {
        for (;;) {
            std::list<Item> items = queue_.take_all();
            if (items.empty()) return;
            handle_(std::move(items));
        }
    }

    Handler handle_;
    Queue<Item> queue_;
    std::thread thread_; // last: it uses the others
};

} // namespace trading
