// Settings of the whole machine that a test changes are put back however the test ends: by a process of its own, which outlives
// it, also when it is killed.
#ifndef HEAPFIT_TESTS_GUARDIAN_H
#define HEAPFIT_TESTS_GUARDIAN_H

#include "system.h"

class Guardian
{
  public:
    // One at a time; made before anything is changed, and before there are threads. `put_back` runs in the other process, once this
    // object or this process is no more.
    template <typename PutBack> explicit Guardian(PutBack put_back)
    {
        EXPECT_EQ(-1, held());
        int watched[2], done[2];
        if (pipe2(watched, O_CLOEXEC) != 0 || pipe2(done, O_CLOEXEC) != 0) std::abort();
        // Two generations and a session of its own: whoever kills a test, its children and its group does not find it.
        pid_t child = fork();
        if (child == 0) {
            if (setsid() < 0 || fork() != 0) _exit(0);
            block_signals();
            close(watched[1]);
            close(done[0]);
            wait_for_end(watched[0]);
            put_back();
            _exit(0);
        }
        if (child < 0) std::abort();
        waitpid(child, nullptr, 0);
        close(watched[0]);
        close(done[1]);
        held() = watched[1];
        done_ = done[0];
        static const int registered = pthread_atfork(nullptr, nullptr, let_go);
        EXPECT_EQ(0, registered);
    }

    // Returns when all is as it was.
    ~Guardian()
    {
        let_go();
        wait_for_end(done_);
        close(done_);
    }

    Guardian(const Guardian &) = delete;
    Guardian &operator=(const Guardian &) = delete;

  private:
    // The end of a pipe that this process alone holds: children let it go.
    static int &held()
    {
        static int descriptor = -1;
        return descriptor;
    }

    static void let_go()
    {
        if (held() >= 0) close(held());
        held() = -1;
    }

    static void block_signals()
    {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, nullptr);
    }

    static void wait_for_end(int descriptor)
    {
        char byte;
        ssize_t size;
        do size = read(descriptor, &byte, 1);
        while (size > 0 || (size < 0 && errno == EINTR));
    }

    int done_;
};

#endif
