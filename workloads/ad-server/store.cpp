// Reading, copying, updating: the old index lives until nobody reads it.
#include "store.hpp"

#include <chrono>
#include <utility>

namespace
{

constexpr std::chrono::milliseconds reader_poll(1); // a request takes about as long

std::int64_t now()
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

} // namespace

ad_store::ad_store(std::size_t bytes, bool shrink) : bytes_(bytes), shrink_(shrink), thread_([this] { run(); })
{
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return current_ != nullptr; });
}

ad_store::~ad_store()
{
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

std::shared_ptr<const ad_index> ad_store::current() const
{
    const std::lock_guard lock(mutex_);
    return current_;
}

void ad_store::begin_reload()
{
    {
        const std::lock_guard lock(mutex_);
        is_asked_ = true;
    }
    changed_.notify_one();
}

bool ad_store::is_reloading() const
{
    const std::lock_guard lock(mutex_);
    return is_asked_;
}

std::vector<reload> ad_store::reloads() const
{
    const std::lock_guard lock(mutex_);
    return reloads_;
}

// The thread that will drop an index also makes it, the first one too.
void ad_store::load()
{
    auto index = std::make_shared<const ad_index>(bytes_);
    const std::lock_guard lock(mutex_);
    current_.swap(index);
    changed_.notify_one();
}

void ad_store::run()
{
    load();
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return is_asked_ || is_stopping_; });
            if (is_stopping_) return;
        }
        const std::int64_t begin = now();
        reload_now();
        const std::lock_guard lock(mutex_);
        reloads_.push_back({begin, now()});
        is_asked_ = false;
    }
}

void ad_store::reload_now()
{
    if (shrink_) footprint_.shrink();
    auto index = std::make_shared<const ad_index>(bytes_);
    {
        const std::lock_guard lock(mutex_);
        index.swap(current_);
    }
    // From here on nobody gets the old one any more, so the count only falls. No reader is to pay for dropping it.
    while (index.use_count() > 1) std::this_thread::sleep_for(reader_poll);
    index.reset();
    if (shrink_) footprint_.restore();
}
