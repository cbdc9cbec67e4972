// request-server [--memory malloc|context|region|switch] [--port N] [--workers N]
//
// Prints the port that it listens on, then serves until SIGTERM.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <string_view>

#include "server.hpp"

namespace
{

struct options {
    memory_mode memory = memory_mode::context;
    std::uint16_t port = 0;
    std::size_t workers = 2;
};

template <class Number> bool read_number(std::string_view text, Number least, Number &to)
{
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
    return error == std::errc() && end == text.data() + text.size() && to >= least;
}

bool read_option(std::string_view name, std::string_view value, options &to)
{
    constexpr std::size_t workers_max = 256;
    if (name == "--port") return read_number<std::uint16_t>(value, 0, to.port);
    if (name == "--workers") return read_number<std::size_t>(value, 1, to.workers) && to.workers <= workers_max;
    if (name != "--memory") return false;
    const auto mode = memory_mode_of(value);
    if (mode) to.memory = *mode;
    return mode.has_value();
}

std::optional<options> read_options(int argc, char **argv)
{
    options read;
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !read_option(argv[i], argv[i + 1], read)) return std::nullopt;
    return read;
}

} // namespace

int main(int argc, char **argv)
{
    const auto options = read_options(argc, argv);
    if (!options) {
        std::fprintf(stderr, "usage: %s [--memory malloc|context|region|switch] [--port N] [--workers N]\n", argv[0]);
        return 2;
    }
    try {
        const auto products = make_catalogue();
        server here(options->port);
        std::printf("listening on 127.0.0.1:%u\n", static_cast<unsigned>(here.port()));
        std::fflush(stdout);
        here.run(products, options->workers, options->memory);
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "%s: %s\n", argv[0], failure.what());
        return 1;
    }
    return 0;
}
