// What the server asks of its allocator beyond malloc and free, of whichever one it runs under. All of it is looked up in
// the running process: the server is linked with none.
#pragma once

#include <cstddef>
#include <string_view>

// Gives up memory for speed's sake and takes it back, as the manual of each allocator tells.
class footprint
{
  public:
    footprint();

    // Before memory is needed for something else: give back what is free. heapfit also keeps none from then on.
    void shrink() const;
    // After it. Others than heapfit give back once more what has become free meanwhile.
    void restore() const;
    // By what, as a function's name; empty: the allocator has nothing of the kind.
    std::string_view means() const
    {
        return means_;
    }

  private:
    void (*shrink_)() = nullptr, (*restore_)() = nullptr;
    std::string_view means_;
};

// heapfit's contexts, where it is heapfit.
struct hf_context;
class contexts
{
  public:
    contexts();

    explicit operator bool() const
    {
        return switch_ != nullptr;
    }
    hf_context *make() const
    {
        return create_(nullptr);
    }
    hf_context *switch_to(hf_context *context) const
    {
        return switch_(context);
    }
    void free_all(hf_context *context) const
    {
        free_all_(context);
    }
    void end(hf_context *context) const
    {
        destroy_(context);
    }

  private:
    hf_context *(*create_)(const void *) = nullptr;
    hf_context *(*switch_)(hf_context *) = nullptr;
    void (*free_all_)(hf_context *) = nullptr, (*destroy_)(hf_context *) = nullptr;
};
