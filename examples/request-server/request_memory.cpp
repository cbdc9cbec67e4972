// How each mode sets a worker up.
#include "request_memory.hpp"

std::optional<memory_mode> memory_mode_of(std::string_view name)
{
    if (name == "malloc") return memory_mode::malloc;
    if (name == "context") return memory_mode::context;
    if (name == "region") return memory_mode::region;
    if (name == "switch") return memory_mode::switched;
    return std::nullopt;
}

request_memory::request_memory(memory_mode mode) : mode_(mode)
{
    if (mode == memory_mode::malloc) return;
    context_.emplace(mode == memory_mode::region ? heapfit::context_kind::region
                                                 : heapfit::context_kind::defrag_dodging);
    if (mode != memory_mode::switched) resource_.emplace(*context_);
}
