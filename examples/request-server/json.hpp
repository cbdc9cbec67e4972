// JSON (RFC 8259): a value read from text, and text from values. Numbers are integers: a shop counts in cents.
#pragma once

#include <cstdint>
#include <map>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace json
{

class value;
using array = std::pmr::vector<value>;
using object = std::pmr::map<std::pmr::string, value, std::less<>>;

class value : public std::variant<std::nullptr_t, bool, std::int64_t, std::pmr::string, array, object>
{
  public:
    using variant::variant;

    // The member of this name, or NULL: there is none, or this is not an object.
    const value *find(std::string_view name) const;
    // What it holds, or NULL: it holds something else.
    template <class T> const T *as() const
    {
        return std::get_if<T>(static_cast<const variant *>(this));
    }
};

// nullopt: `text` is not JSON, or has numbers with a fraction, or is nested too deep.
std::optional<value> parse(std::string_view text, std::pmr::memory_resource *resource);

// Append `text` as a JSON string.
void append_string(std::pmr::string &to, std::string_view text);

} // namespace json
