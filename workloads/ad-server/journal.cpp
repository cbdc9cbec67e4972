// A queue, taken as a whole.
#include "journal.hpp"

#include <chrono>
#include <iterator>

namespace
{

constexpr std::size_t kept_max = 4096; // so that what a request has left pins memory long after the request is over
constexpr std::chrono::milliseconds batch(20);

} // namespace

journal::journal() : thread_([this] { run(); }) {}

journal::~journal()
{
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

void journal::note(std::unique_ptr<const shown> what)
{
    const std::lock_guard lock(mutex_);
    fresh_.push_back(std::move(what));
    noted_++;
}

std::uint64_t journal::noted() const
{
    const std::lock_guard lock(mutex_);
    return noted_;
}

void journal::run()
{
    for (bool is_last = false; !is_last;) {
        std::vector<std::unique_ptr<const shown>> taken;
        {
            std::unique_lock lock(mutex_);
            is_last = changed_.wait_for(lock, batch, [this] { return is_stopping_; });
            taken.swap(fresh_);
        }
        kept_.insert(kept_.end(), std::make_move_iterator(taken.begin()), std::make_move_iterator(taken.end()));
        while (kept_.size() > kept_max) kept_.pop_front();
    }
}
