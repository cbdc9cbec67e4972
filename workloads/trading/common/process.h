// What all programs of the middleware do alike: read their options, stop when they are told to.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace trading
{

// Options are `--name value`, all of them numbers or texts that the program needs.
class Options
{
  public:
    Options(int argc, char **argv);
    const std::string &text(const std::string &name) const;
    int number(const std::string &name) const;

  private:
    std::map<std::string, std::string> values_;
};

// Holds SIGTERM and SIGINT back in this thread and those that it starts, until `wait_for_stop`.
// Called before the first thread is started.
void hold_stop_signals();
// Returns on SIGTERM or SIGINT. From then on the process has a bounded time to end by itself.
void wait_for_stop();

// Runs the body of a program; an exception becomes a line on standard error and exit code 1.
int run_program(const char *name, const std::function<int()> &body);

} // namespace trading
