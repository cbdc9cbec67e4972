// ad-server [--port N] [--workers N] [--mebibytes N] [--swing N] [--shrink on|off] [--contexts on|off]
//
// Prints the port that it listens on, then serves until SIGTERM.
#include <charconv>
#include <cstdio>
#include <exception>
#include <limits>
#include <optional>
#include <string_view>

#include <sched.h>
#include <sys/prctl.h>

#include "loopback.hpp"
#include "server.hpp"

namespace
{

constexpr std::size_t mebibyte = 1 << 20;

struct options {
    std::uint16_t port = 0;
    std::size_t workers = 0; // 0: two for each processor
    std::size_t mebibytes = 64, swing = 16;
    bool shrink = false, contexts = false;
};

template <class Number> bool read_number(std::string_view text, Number most, Number &to)
{
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
    return error == std::errc() && end == text.data() + text.size() && to <= most;
}

bool read_switch(std::string_view text, bool &to)
{
    to = text == "on";
    return to || text == "off";
}

bool read_option(std::string_view name, std::string_view value, options &to)
{
    constexpr std::size_t workers_max = 1024, mebibytes_max = std::size_t(1) << 20;
    if (name == "--port") return read_number(value, std::numeric_limits<std::uint16_t>::max(), to.port);
    if (name == "--workers") return read_number(value, workers_max, to.workers);
    if (name == "--mebibytes") return read_number(value, mebibytes_max, to.mebibytes);
    if (name == "--swing") return read_number(value, mebibytes_max, to.swing);
    if (name == "--shrink") return read_switch(value, to.shrink);
    return name == "--contexts" && read_switch(value, to.contexts);
}

std::optional<options> read_options(int argc, char **argv)
{
    options read;
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !read_option(argv[i], argv[i + 1], read)) return std::nullopt;
    return read;
}

std::size_t usable_processors()
{
    cpu_set_t allowed;
    return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? static_cast<std::size_t>(CPU_COUNT(&allowed)) : 1;
}

void serve(const options &how)
{
    ::prctl(PR_SET_PTRACER,
            PR_SET_PTRACER_ANY); // for strace, which counts system calls where tracepoints cannot be had
    const contexts memory;
    if (how.contexts && !memory) std::fputs("ad-server: this allocator has no contexts; it serves without\n", stderr);
    descriptor signals = end_signals(); // before there is any other thread
    ad_store ads(how.mebibytes * mebibyte, how.shrink);
    server here(how.port, std::move(signals), ads, how.swing * mebibyte, how.contexts && memory ? &memory : nullptr);
    std::printf("listening on 127.0.0.1:%u\n", static_cast<unsigned>(here.port()));
    std::fflush(stdout);
    here.run(how.workers > 0 ? how.workers : 2 * usable_processors());
}

} // namespace

int main(int argc, char **argv)
{
    const auto options = read_options(argc, argv);
    if (!options) {
        std::fprintf(stderr,
                     "usage: %s [--port N] [--workers N] [--mebibytes N] [--swing N] [--shrink on|off] "
                     "[--contexts on|off]\n",
                     argv[0]);
        return 2;
    }
    try {
        serve(*options);
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "%s: %s\n", argv[0], failure.what());
        return 1;
    }
    return 0;
}
