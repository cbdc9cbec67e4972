// The middleware as one program: starts the three processes, ends them together.
//
//   trading --programs DIR --dictionary FILE --scratch DIR --port PORT --sessions N --threads N
//           --limit N
//
// The processes run in the scratch folder, which holds their sockets and the journal. SIGTERM ends the
// gateway first and the data manager last, so that nothing under way is lost. A process that ends by
// itself ends the others too. None outlives the supervisor, even when that is killed.
#include "common/process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace trading
{

namespace
{

// A process has this long to end by itself; three times that is less than the lab waits.
constexpr std::time_t stop_grace_s = 5;

class Child
{
  public:
    Child(std::string program, std::vector<std::string> arguments) : program_(std::move(program))
    {
        const pid_t parent = getpid();
        pid_ = fork();
        if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
        if (pid_ == 0) become(arguments, parent);
    }
    ~Child()
    {
        end();
    }
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    // Whether it has ended; never waits.
    bool ended()
    {
        if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = 0;
        return pid_ == 0;
    }

    // Ends it, gently if that works. True if it ended by itself and well.
    bool end()
    {
        const bool was_there = !ended();
        if (was_there) kill(pid_, SIGTERM);
        if (!wait_until_ended()) {
            std::cerr << "trading: " << program_ << " did not end and is killed\n";
            kill(pid_, SIGKILL);
            waitpid(pid_, &status_, 0);
            pid_ = 0;
        }
        return was_there && WIFEXITED(status_) && WEXITSTATUS(status_) == 0;
    }

    std::string how_it_ended() const
    {
        if (WIFSIGNALED(status_)) return program_ + " was killed by signal " + std::to_string(WTERMSIG(status_));
        return program_ + " ended with exit code " + std::to_string(WEXITSTATUS(status_));
    }

  private:
    [[noreturn]] void become(const std::vector<std::string> &arguments, pid_t parent) const
    {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(EXIT_FAILURE); // it died before the line above took effect
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, nullptr);
        std::vector<char *> words{const_cast<char *>(program_.c_str())};
        for (const std::string &argument : arguments) words.push_back(const_cast<char *>(argument.c_str()));
        words.push_back(nullptr);
        execv(words[0], words.data());
        _exit(127);
    }

    bool wait_until_ended()
    {
        sigset_t awaited;
        sigemptyset(&awaited);
        sigaddset(&awaited, SIGCHLD);
        timespec deadline{};
        clock_gettime(CLOCK_MONOTONIC, &deadline);
        deadline.tv_sec += stop_grace_s;
        while (!ended()) {
            timespec now{};
            clock_gettime(CLOCK_MONOTONIC, &now);
            if (now.tv_sec >= deadline.tv_sec) return false;
            const timespec pause{1, 0};
            sigtimedwait(&awaited, nullptr, &pause);
        }
        return true;
    }

    std::string program_;
    pid_t pid_ = 0; // 0 once it has been waited for
    int status_ = 0;
};

// Returns when the supervisor is told to stop or a process has ended by itself, which is an error.
bool wait_for_stop_or_loss(std::array<Child, 3> &children)
{
    sigset_t awaited;
    sigemptyset(&awaited);
    for (const int number : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&awaited, number);
    for (;;) {
        int number = 0;
        if (sigwait(&awaited, &number) != 0) continue;
        if (number != SIGCHLD) return true;
        for (Child &child : children) {
            if (!child.ended()) continue;
            std::cerr << "trading: " << child.how_it_ended() << '\n';
            return false;
        }
    }
}

// The processes work in another folder.
std::string absolute(const std::string &path)
{
    return std::filesystem::absolute(path).string();
}

int run(const Options &options)
{
    hold_stop_signals();
    sigset_t children_end;
    sigemptyset(&children_end);
    sigaddset(&children_end, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children_end, nullptr);

    const std::string programs = absolute(options.text("programs")) + "/trading-";
    const std::string &sessions = options.text("sessions");
    const std::string &threads = options.text("threads");
    const std::vector<std::string> common{"--sessions", sessions, "--threads", threads};
    std::vector<std::string> managing = common;
    managing.insert(managing.end(), {"--limit", options.text("limit")});
    std::vector<std::string> accepting = common;
    accepting.insert(accepting.end(),
                     {"--port", options.text("port"), "--dictionary", absolute(options.text("dictionary"))});

    if (chdir(options.text("scratch").c_str()) != 0)
        throw std::system_error(errno, std::generic_category(), options.text("scratch"));
    std::array<Child, 3> children{
        {{programs + "gateway", accepting}, {programs + "sessions", managing}, {programs + "data", common}}};
    bool well = wait_for_stop_or_loss(children);
    for (Child &child : children) well = child.end() && well;
    return well ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

} // namespace trading

int main(int argc, char **argv)
{
    return trading::run_program("trading", [&] { return trading::run({argc, argv}); });
}
