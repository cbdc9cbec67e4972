// A recursive-descent parser: each production of the grammar is a function.
#include "json.hpp"

#include <array>
#include <charconv>

namespace json
{
namespace
{

constexpr int depth_max = 64;

class parser
{
  public:
    parser(std::string_view text, std::pmr::memory_resource *resource) : rest_(text), resource_(resource) {}

    std::optional<value> document()
    {
        auto parsed = any(0);
        skip_space();
        return rest_.empty() ? std::move(parsed) : std::nullopt;
    }

  private:
    // Constructed where it is returned; gcc 12 takes a value that is moved there for uninitialised.
    template <class T> static std::optional<value> made(T &&from)
    {
        return std::optional<value>(std::in_place, std::forward<T>(from));
    }

    void skip_space()
    {
        const std::size_t first = rest_.find_first_not_of(" \t\r\n");
        rest_.remove_prefix(first == rest_.npos ? rest_.size() : first);
    }

    bool accept(std::string_view token)
    {
        skip_space();
        if (rest_.substr(0, token.size()) != token) return false;
        rest_.remove_prefix(token.size());
        return true;
    }

    std::optional<value> any(int depth)
    {
        if (depth > depth_max) return std::nullopt;
        if (accept("{")) return members(depth);
        if (accept("[")) return elements(depth);
        if (accept("\"")) {
            auto text = string();
            if (!text) return std::nullopt;
            return made(std::move(*text));
        }
        if (accept("true")) return made(true);
        if (accept("false")) return made(false);
        if (accept("null")) return made(nullptr);
        return number();
    }

    std::optional<value> members(int depth)
    {
        object all(resource_);
        if (accept("}")) return made(std::move(all));
        do {
            if (!accept("\"")) return std::nullopt;
            auto name = string();
            if (!name || !accept(":")) return std::nullopt;
            auto member = any(depth + 1);
            if (!member) return std::nullopt;
            all.insert_or_assign(std::move(*name), std::move(*member));
        } while (accept(","));
        if (!accept("}")) return std::nullopt;
        return made(std::move(all));
    }

    std::optional<value> elements(int depth)
    {
        array all(resource_);
        if (accept("]")) return made(std::move(all));
        do {
            auto element = any(depth + 1);
            if (!element) return std::nullopt;
            all.push_back(std::move(*element));
        } while (accept(","));
        if (!accept("]")) return std::nullopt;
        return made(std::move(all));
    }

    std::optional<value> number()
    {
        std::int64_t integer = 0;
        const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), integer);
        if (error != std::errc()) return std::nullopt;
        rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
        return made(integer);
    }

    // Behind the opening quote.
    std::optional<std::pmr::string> string()
    {
        std::pmr::string text(resource_);
        while (!rest_.empty() && static_cast<unsigned char>(rest_.front()) >= ' ') {
            const char c = rest_.front();
            rest_.remove_prefix(1);
            if (c == '"') return text;
            if (c != '\\') text += c;
            else if (!escape(text)) return std::nullopt;
        }
        return std::nullopt;
    }

    bool escape(std::pmr::string &text)
    {
        constexpr std::string_view letters = "\"\\/bfnrtu", meanings = "\"\\/\b\f\n\r\t";
        const std::size_t which = rest_.empty() ? letters.npos : letters.find(rest_.front());
        if (which == letters.npos) return false;
        rest_.remove_prefix(1);
        if (which < meanings.size()) return text += meanings[which], true;
        return code_point(text);
    }

    // \uXXXX as UTF-8; a half of a surrogate pair alone is none.
    bool code_point(std::pmr::string &text)
    {
        auto point = code_unit();
        if (point && *point >= 0xD800 && *point < 0xDC00) {
            if (rest_.substr(0, 2) != "\\u") return false;
            rest_.remove_prefix(2);
            const auto low = code_unit();
            if (!low || *low < 0xDC00 || *low > 0xDFFF) return false;
            point = 0x10000 + ((*point - 0xD800) << 10) + (*low - 0xDC00);
        } else if (!point || (*point >= 0xDC00 && *point <= 0xDFFF)) {
            return false;
        }
        append_utf8(text, *point);
        return true;
    }

    std::optional<std::uint32_t> code_unit()
    {
        constexpr std::size_t digits = 4;
        std::uint32_t unit = 0;
        if (rest_.size() < digits) return std::nullopt;
        const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + digits, unit, 16);
        if (error != std::errc() || end != rest_.data() + digits) return std::nullopt;
        rest_.remove_prefix(digits);
        return unit;
    }

    static void append_utf8(std::pmr::string &text, std::uint32_t point)
    {
        const auto rest = [&](int shift) { text += static_cast<char>(0x80 | (point >> shift & 0x3F)); };
        if (point < 0x80) {
            text += static_cast<char>(point);
        } else if (point < 0x800) {
            text += static_cast<char>(0xC0 | point >> 6);
            rest(0);
        } else if (point < 0x10000) {
            text += static_cast<char>(0xE0 | point >> 12);
            rest(6), rest(0);
        } else {
            text += static_cast<char>(0xF0 | point >> 18);
            rest(12), rest(6), rest(0);
        }
    }

    std::string_view rest_;
    std::pmr::memory_resource *resource_;
};

} // namespace

const value *value::find(std::string_view name) const
{
    const auto *members = as<object>();
    if (members == nullptr) return nullptr;
    const auto found = members->find(name);
    return found == members->end() ? nullptr : &found->second;
}

std::optional<value> parse(std::string_view text, std::pmr::memory_resource *resource)
{
    return parser(text, resource).document();
}

void append_string(std::pmr::string &to, std::string_view text)
{
    constexpr std::string_view digits = "0123456789abcdef";
    to += '"';
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') (to += '\\') += c;
        else if (byte < ' ') ((to += "\\u00") += digits[byte >> 4]) += digits[byte & 15];
        else to += c;
    }
    to += '"';
}

} // namespace json
