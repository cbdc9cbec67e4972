// Parsing requests in place, writing responses.
#include "http.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace http
{
namespace
{

constexpr std::size_t head_max = 16 * 1024, body_max = 1024 * 1024; // bytes
constexpr std::string_view line_end = "\r\n", head_end = "\r\n\r\n";

std::string_view cut(std::string_view &rest, std::string_view separator)
{
    const std::size_t end = rest.find(separator);
    const std::string_view first = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + separator.size());
    return first;
}

char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_same(std::string_view left, std::string_view right)
{
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [](char a, char b) { return lower(a) == lower(b); });
}

std::string_view trim(std::string_view text)
{
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

std::optional<std::size_t> number(std::string_view text)
{
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

parsed broken(int status)
{
    parsed result;
    result.state = progress::broken;
    result.status = status;
    return result;
}

// The status that a header field makes the request fail with; 0: none.
int read_field(std::string_view name, std::string_view value, request &what, std::size_t &body)
{
    if (is_same(name, "content-length")) {
        const auto length = number(value);
        if (!length) return 400;
        if (*length > body_max) return 413;
        body = *length;
    } else if (is_same(name, "connection")) {
        if (is_same(value, "close")) what.keep_alive = false;
        if (is_same(value, "keep-alive")) what.keep_alive = true;
    } else if (is_same(name, "transfer-encoding")) {
        return 501;
    }
    return 0;
}

std::string_view reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 413:
        return "Content Too Large";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Internal Server Error";
    }
}

int hexadecimal(char digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    const char letter = lower(digit);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

std::pmr::string unescaped(std::string_view text, std::pmr::memory_resource *resource)
{
    std::pmr::string plain(resource);
    for (std::size_t i = 0; i < text.size(); i++) {
        const int high = text[i] == '%' && i + 2 < text.size() ? hexadecimal(text[i + 1]) : -1;
        const int low = high >= 0 ? hexadecimal(text[i + 2]) : -1;
        if (low >= 0) {
            plain += static_cast<char>(high * 16 + low);
            i += 2;
        } else {
            plain += text[i] == '+' ? ' ' : text[i];
        }
    }
    return plain;
}

} // namespace

parsed parse(std::string_view input)
{
    const std::size_t end = input.find(head_end);
    if (end == input.npos) return input.size() > head_max ? broken(431) : parsed();
    if (end > head_max) return broken(431);

    parsed result;
    request &what = result.what;
    std::string_view head = input.substr(0, end), line = cut(head, line_end);
    what.method = cut(line, " ");
    what.query = cut(line, " ");
    what.path = cut(what.query, "?");
    if (line != "HTTP/1.1" && line != "HTTP/1.0") return broken(line.substr(0, 5) == "HTTP/" ? 505 : 400);
    what.keep_alive = line == "HTTP/1.1";

    std::size_t body = 0;
    while (!head.empty()) {
        std::string_view value = cut(head, line_end);
        const std::string_view name = cut(value, ":");
        const int status = read_field(name, trim(value), what, body);
        if (status != 0) return broken(status);
    }
    const std::size_t start = end + head_end.size();
    if (input.size() - start < body) return parsed();
    what.body = input.substr(start, body);
    result.length = start + body;
    result.state = progress::complete;
    return result;
}

std::pmr::string serialise(const response &answer, bool keep_alive, std::pmr::memory_resource *resource)
{
    constexpr std::size_t head_usual = 160; // bytes
    std::pmr::string bytes(resource);
    bytes.reserve(answer.body.size() + head_usual);
    bytes.append("HTTP/1.1 ").append(std::to_string(answer.status)).append(" ").append(reason(answer.status));
    bytes.append("\r\nContent-Type: ").append(answer.type);
    bytes.append("\r\nContent-Length: ").append(std::to_string(answer.body.size()));
    bytes.append(keep_alive ? "\r\nConnection: keep-alive" : "\r\nConnection: close");
    return bytes.append(head_end).append(answer.body), bytes;
}

parameters parse_query(std::string_view query, std::pmr::memory_resource *resource)
{
    parameters all(resource);
    while (!query.empty()) {
        std::string_view value = cut(query, "&");
        const std::string_view name = cut(value, "=");
        all.emplace_back(unescaped(name, resource), unescaped(value, resource));
    }
    return all;
}

std::string_view find(const parameters &all, std::string_view name)
{
    const auto found = std::find_if(all.begin(), all.end(), [name](const auto &each) { return each.first == name; });
    return found == all.end() ? std::string_view() : std::string_view(found->second);
}

} // namespace http
