// The process that tests of the control channel steer. Does what its argument says, writes "ready" and its number in
// one line to stdout, lives until its stdin ends, and exits with 0 when all was well.

#include "heapfit/heapfit.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

void say_ready()
{
    std::string line = "ready " + std::to_string(getpid()) + "\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0) _exit(1);
}

void wait_for_end()
{
    char ignored;
    while (read(STDIN_FILENO, &ignored, 1) > 0) {
    }
}

int wait_here()
{
    hf_free(hf_malloc(100));
    say_ready();
    wait_for_end();
    return 0;
}

int allocate_in_threads()
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 2; t++)
        threads.emplace_back([&stop, t] {
            std::vector<void *> live(500);
            for (unsigned i = t + 1; !stop; i = i * 1103515245 + 12345) {
                void *&object = live[(i >> 8) % live.size()];
                hf_free(object);
                object = hf_malloc((i >> 16) % (i % 64 == 0 ? 200000 : 2000));
            }
            for (void *object : live) hf_free(object);
        });
    say_ready();
    wait_for_end();
    stop = true;
    for (std::thread &each : threads) each.join();
    return 0;
}

int with_child()
{
    pid_t child = fork();
    say_ready();
    wait_for_end();
    int status = 0;
    if (child != 0 && (waitpid(child, &status, 0) != child || status != 0)) return 1;
    return 0;
}

// What the C library has not written yet is written when the last thread has ended.
int leave_by_pthread_exit()
{
    std::thread([] {
        say_ready();
        wait_for_end();
        printf("written at the end");
    }).detach();
    pthread_exit(nullptr);
}

} // namespace

int main(int count, char **arguments)
{
    std::string what = count > 1 ? arguments[1] : "wait";
    int result = what == "busy"      ? allocate_in_threads()
                 : what == "forking" ? with_child()
                 : what == "leaving" ? leave_by_pthread_exit()
                                     : wait_here();
    return result;
}
