// HTTP/1.1 (RFC 9112), as much as the server needs: requests with a Content-Length, responses with one.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace http
{

// Views into the connection's input: valid while it is not changed.
struct request {
    std::string_view method, path, query;
    std::string_view body;
    bool keep_alive = true;
};

struct response {
    explicit response(std::pmr::memory_resource *resource) : body(resource) {}
    int status = 200;
    std::string_view type = "text/plain; charset=utf-8"; // a literal
    std::pmr::string body;
};

enum class progress { incomplete, complete, broken };

struct parsed {
    progress state = progress::incomplete;
    int status = 400;       // broken: what to answer
    std::size_t length = 0; // complete: of the request, in bytes
    request what;
};

// The first request of `input`, which may hold less, or several.
parsed parse(std::string_view input);

// What goes over the connection.
std::pmr::string serialise(const response &answer, bool keep_alive, std::pmr::memory_resource *resource);

using parameters = std::pmr::vector<std::pair<std::pmr::string, std::pmr::string>>;

// name=value&name=value with escapes undone.
parameters parse_query(std::string_view query, std::pmr::memory_resource *resource);
// The first value of this name; empty: none.
std::string_view find(const parameters &all, std::string_view name);

} // namespace http
