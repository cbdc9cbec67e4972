// What was shown to whom: made by the threads that serve, kept for a while and freed by another.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

struct shown {
    std::string query;
    std::vector<std::unique_ptr<std::string>> lines; // one for each ad
};

class journal
{
  public:
    journal();
    ~journal();

    // Any thread may.
    void note(std::unique_ptr<const shown> what);
    std::uint64_t noted() const;

  private:
    void run();

    mutable std::mutex mutex_; // of what follows
    std::condition_variable changed_;
    std::vector<std::unique_ptr<const shown>> fresh_;
    std::uint64_t noted_ = 0;
    bool is_stopping_ = false;
    std::deque<std::unique_ptr<const shown>> kept_; // the thread's own
    std::thread thread_;                            // last: it uses all the others
};
