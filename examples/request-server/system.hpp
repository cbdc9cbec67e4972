// File descriptors that close themselves, and system calls that throw.
#pragma once

#include <cerrno>
#include <system_error>
#include <utility>

#include <unistd.h>

class descriptor
{
  public:
    descriptor() = default;
    explicit descriptor(int number) : number_(number) {}
    descriptor(descriptor &&other) noexcept : number_(std::exchange(other.number_, -1)) {}
    descriptor &operator=(descriptor &&other) noexcept
    {
        std::swap(number_, other.number_);
        return *this;
    }
    ~descriptor()
    {
        if (number_ >= 0) ::close(number_);
    }

    int get() const
    {
        return number_;
    }
    int release()
    {
        return std::exchange(number_, -1);
    }

  private:
    int number_ = -1;
};

// The result of a system call, or an exception that names it.
inline int checked(int result, const char *call)
{
    if (result < 0) throw std::system_error(errno, std::generic_category(), call);
    return result;
}
