// Where the objects of a request live, and how they go: freed in a row, one by one; or, in one of heapfit's contexts, all
// by one call.
#pragma once

#include <memory>

#include "allocator.hpp"
#include "ranking.hpp"

// Of one thread.
class request_heap
{
  public:
    // `memory` outlives it; NULL: objects are freed one by one.
    explicit request_heap(const contexts *memory) : contexts_(memory), context_(memory ? memory->make() : nullptr) {}
    request_heap(const request_heap &) = delete;
    request_heap &operator=(const request_heap &) = delete;
    ~request_heap()
    {
        if (context_ != nullptr) contexts_->end(context_);
    }

    // Let `make` fill in the objects of a request, let `use` have them, forget them. What `use` allocates outlives the
    // request. `make` must not throw: an exception would be made of the request's memory.
    template <class Make, class Use> void request(Make &&make, Use &&use)
    {
        if (context_ == nullptr) {
            const auto objects = std::make_unique<work>();
            make(*objects);
            use(*objects);
            return;
        }
        hf_context *const outer = contexts_->switch_to(context_);
        auto *const objects = new work; // nobody deletes it: free_all stands in for all destructors
        make(*objects);
        contexts_->switch_to(outer);
        use(*objects);
        contexts_->free_all(context_);
    }

  private:
    const contexts *contexts_;
    hf_context *context_;
};
