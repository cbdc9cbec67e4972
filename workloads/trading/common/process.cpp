// Options, signals, and the way errors are told.
#include "common/process.h"

#include <csignal>
#include <iostream>
#include <stdexcept>
#include <unistd.h>

namespace trading
{

namespace
{

// Ending takes milliseconds. SIGALRM ends a process that hangs, well before the lab's patience ends.
constexpr unsigned stop_grace_s = 4;

sigset_t stop_signals()
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    return signals;
}

} // namespace

Options::Options(int argc, char **argv)
{
    for (int at = 1; at < argc; at += 2) {
        const std::string name = argv[at];
        if (name.compare(0, 2, "--") != 0 || at + 1 == argc)
            throw std::invalid_argument("options are --name value, not: " + name);
        values_[name.substr(2)] = argv[at + 1];
    }
}

const std::string &Options::text(const std::string &name) const
{
    const auto found = values_.find(name);
    if (found == values_.end()) throw std::invalid_argument("needs --" + name);
    return found->second;
}

int Options::number(const std::string &name) const
{
    const std::string &value = text(name);
    std::size_t used = 0;
    int number = 0;
    try {
        number = std::stoi(value, &used);
    } catch (const std::logic_error &) {
        used = 0;
    }
    if (used != value.size() || value.empty() || number < 1)
        throw std::invalid_argument("--" + name + " is a number above 0, not: " + value);
    return number;
}

void hold_stop_signals()
{
    const sigset_t signals = stop_signals();
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
}

void wait_for_stop()
{
    const sigset_t signals = stop_signals();
    int number = 0;
    while (sigwait(&signals, &number) != 0) {
    }
    alarm(stop_grace_s);
}

int run_program(const char *name, const std::function<int()> &body)
{
    try {
        return body();
    } catch (const std::exception &error) {
        std::cerr << name << ": " << error.what() << '\n';
        return 1;
    }
}

} // namespace trading
