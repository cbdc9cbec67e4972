// Threads that work, then sleep until they are woken.
#ifndef HEAPFIT_TESTS_SLEEPERS_H
#define HEAPFIT_TESTS_SLEEPERS_H

#include "system.h"

class Sleepers
{
  public:
    // Returns when all of them sleep. Each does `before`, and `after` once it is woken.
    template <typename Before, typename After> Sleepers(size_t count, Before before, After after)
    {
        for (size_t i = 0; i < count; i++) threads_.emplace_back([this, before, after] { before(), sleep(), after(); });
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return asleep_ == count; });
    }

    template <typename Before> Sleepers(size_t count, Before before) : Sleepers(count, before, [] {}) {}

    ~Sleepers()
    {
        wake();
    }

    // Returns when they have ended.
    void wake()
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            awake_ = true;
        }
        changed_.notify_all();
        for (auto &thread : threads_) thread.join();
        threads_.clear();
    }

  private:
    void sleep()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        asleep_++;
        changed_.notify_all();
        changed_.wait(lock, [&] { return awake_; });
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    size_t asleep_ = 0;
    bool awake_ = false;
    std::vector<std::thread> threads_;
};

#endif
