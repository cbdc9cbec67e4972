// A thread that does what it is told, one thing after the other, and lives until its object dies.
#ifndef HEAPFIT_TESTS_ACTOR_H
#define HEAPFIT_TESTS_ACTOR_H

#include "system.h"

class Actor
{
  public:
    Actor() : thread_([this] { act(); }) {}

    ~Actor()
    {
        run(nullptr);
        thread_.join();
    }

    Actor(const Actor &) = delete;
    Actor &operator=(const Actor &) = delete;

    // Returns when it is done.
    void operator()(const std::function<void()> &task)
    {
        run(&task);
    }

  private:
    void run(const std::function<void()> *task)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        task_ = task;
        told_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return !told_; });
    }

    void act()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        bool goes_on = true;
        while (goes_on) {
            changed_.wait(lock, [this] { return told_; });
            goes_on = task_ != nullptr;
            if (goes_on) (*task_)();
            told_ = false;
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    const std::function<void()> *task_ = nullptr;
    bool told_ = false;
    std::thread thread_; // last: it uses the others
};

#endif
