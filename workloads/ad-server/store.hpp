// The index in force, and the thread that puts a new one in its place.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ads.hpp"
#include "allocator.hpp"

// When a reload was at work, in nanoseconds of CLOCK_MONOTONIC.
struct reload {
    std::int64_t begin, end;
};

class ad_store
{
  public:
    // Returns when the first index is there. `shrink`: ask the allocator to give back memory around each reload.
    ad_store(std::size_t bytes, bool shrink);
    ~ad_store();

    // To be kept while a request reads it, and no longer.
    std::shared_ptr<const ad_index> current() const;
    // Build the index anew beside the old one, put it in its place, drop the old one when its last reader has let go. Returns
    // at once. Any thread may.
    void begin_reload();
    bool is_reloading() const;
    std::vector<reload> reloads() const; // that have ended
    const footprint &memory() const
    {
        return footprint_;
    }

  private:
    void run();
    void load();
    void reload_now();

    const std::size_t bytes_;
    const bool shrink_;
    const footprint footprint_;
    mutable std::mutex mutex_; // of what follows
    std::condition_variable changed_;
    bool is_asked_ = false, is_stopping_ = false;
    std::shared_ptr<const ad_index> current_;
    std::vector<reload> reloads_;
    std::thread thread_; // last: it uses all the others
};
