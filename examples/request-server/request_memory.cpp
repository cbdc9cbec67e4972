// How each mode sets a worker up.
#include "request_memory.hpp"

#include <new>

namespace
{

// What std::string and std::vector would use. std::pmr::new_delete_resource is not quite that: it asks for aligned memory,
// which costs more.
class ordinary_resource : public std::pmr::memory_resource
{
    static bool is_ordinary(std::size_t alignment)
    {
        return alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__;
    }
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        return is_ordinary(alignment) ? ::operator new(bytes) : ::operator new(bytes, std::align_val_t(alignment));
    }
    void do_deallocate(void *object, std::size_t bytes, std::size_t alignment) override
    {
#if __cpp_sized_deallocation // before clang 19 only with -fsized-deallocation
        if (is_ordinary(alignment)) ::operator delete(object, bytes);
        else ::operator delete(object, bytes, std::align_val_t(alignment));
#else
        (void)bytes;
        if (is_ordinary(alignment)) ::operator delete(object);
        else ::operator delete(object, std::align_val_t(alignment));
#endif
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other;
    }
};

ordinary_resource ordinary;

} // namespace

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
    if (mode == memory_mode::context || mode == memory_mode::switched) context_.emplace();
    if (mode == memory_mode::region) region_.emplace();
}

std::pmr::memory_resource *request_memory::resource()
{
    if (mode_ == memory_mode::context) return &*context_;
    if (mode_ == memory_mode::region) return &*region_;
    return &ordinary;
}
