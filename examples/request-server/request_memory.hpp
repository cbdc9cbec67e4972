// Where a worker's requests take their memory from: the one place in which the four modes differ. The code that handles
// requests is given a std::pmr::memory_resource and knows of none of them.
#pragma once

#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>

#include <heapfit/pmr.hpp>

enum class memory_mode {
    malloc, // operator new and delete: each object is freed on its own
    context, // a defrag-dodging context: each object is freed, then all
    region, // a region: all objects are freed at once, none before
    switched // operator new, while the thread has switched to a context: for code that takes no resource
};

// The mode of a name of the command line: malloc, context, region, switch.
std::optional<memory_mode> memory_mode_of(std::string_view name);

// Owned and used by one worker's thread.
class request_memory
{
  public:
    explicit request_memory(memory_mode mode);

    // Let `handle` make an answer with memory of the request, let `send` have it with memory of the thread, forget the request.
    // `handle` takes a std::pmr::memory_resource * and returns a std::pmr::string; it must not throw, since an exception
    // would be made of memory of the request.
    template <class Handle, class Send> void request(Handle &&handle, Send &&send)
    {
        {
            const std::pmr::string answer = switched(handle);
            send(answer);
        }
        if (context_) context_->release();
        if (region_) region_->release();
    }

  private:
    template <class Handle> std::pmr::string switched(Handle &handle)
    {
        if (mode_ != memory_mode::switched) return handle(resource());
        const heapfit::switch_to request(*context_);
        return handle(resource());
    }

    std::pmr::memory_resource *resource();

    memory_mode mode_;
    std::optional<heapfit::defrag_dodging_resource> context_;
    std::optional<heapfit::region_resource> region_;
};
