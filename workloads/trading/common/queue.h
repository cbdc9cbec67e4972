// A queue between threads: any number push, one or more wait for what comes.
#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>

namespace trading
{

template <typename Item> class Queue
{
  public:
    // Pushing into a closed queue drops the item: whoever would take it is gone.
    void push(Item item)
    {
        std::list<Item> one; // the node is made outside the lock
        one.push_back(std::move(item));
        std::lock_guard<std::mutex> hold(lock_);
        if (closed_) return;
        items_.splice(items_.end(), one);
        arrived_.notify_one();
    }

    // Waits for items and returns all there are, in order; an empty list once the queue is closed and
    // everything in it has been taken.
    std::list<Item> take_all()
    {
        std::unique_lock<std::mutex> hold(lock_);
        arrived_.wait(hold, [this] { return closed_ || !items_.empty(); });
        return std::exchange(items_, {});
    }

    void close()
    {
        std::lock_guard<std::mutex> hold(lock_);
        closed_ = true;
        arrived_.notify_all();
    }

  private:
    std::mutex lock_; // guards everything below
    std::condition_variable arrived_;
    std::list<Item> items_;
    bool closed_ = false;
};

} // namespace trading
