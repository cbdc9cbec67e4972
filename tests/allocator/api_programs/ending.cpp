// The end of a process, in the way that the argument names: static objects, thread-local ones, thread-specific data and exit
// handlers all allocate, and free what was allocated before them. Exits with 0 when each did its part and nothing crashed.

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <heapfit/heapfit.h>

namespace
{

enum : unsigned { THREAD_LOCAL = 1, THREAD_SPECIFIC = 2, EXIT_HANDLER = 4, STATIC_OBJECT = 8, ALL = 15 };
unsigned expected, done; // bits of the above: those of the thread under test

void require(bool condition)
{
    if (!condition) _exit(1);
}

void allocate_and_free()
{
    std::vector<std::string> strings(200, "a string that does not fit into itself");
    require(hf_is_ours(strings.data()));
    void *large = std::calloc(1, 300'000);
    require(large != nullptr);
    std::memset(large, 1, 300'000);
    std::free(large);
}

// Holds blocks for as long as it lives, and allocates when it dies.
struct Keeper {
    explicit Keeper(unsigned bit) : stage(bit), small(std::malloc(40)), large(std::malloc(200'000)) {}
    Keeper(const Keeper &) = delete;
    Keeper &operator=(const Keeper &) = delete;
    ~Keeper()
    {
        allocate_and_free();
        std::free(small);
        std::free(large);
        done |= stage;
    }
    unsigned stage;
    void *small, *large;
};

Keeper static_object(STATIC_OBJECT);
void *of_the_handler;
pthread_key_t key;

void leave_thread_data()
{
    static thread_local Keeper thread_object(THREAD_LOCAL);
    require(thread_object.small != nullptr);
    require(pthread_setspecific(key, new Keeper(THREAD_SPECIFIC)) == 0);
}

void handler()
{
    allocate_and_free();
    std::free(of_the_handler);
    done |= EXIT_HANDLER;
}

// The last of all: the destructors of the program with low numbers.
__attribute__((destructor(101))) void look_back()
{
    allocate_and_free();
    require((done & expected) == expected);
}

void allocate_for_ever()
{
    for (;;) allocate_and_free();
}

// Until the kernel says that nothing but its remains are there.
void wait_for_the_end_of_main()
{
    std::string path = "/proc/self/task/" + std::to_string(getpid()) + "/stat";
    for (char state = 0; state != 'Z';) {
        char line[256] = {};
        int file = open(path.c_str(), O_RDONLY);
        require(file >= 0 && read(file, line, sizeof line - 1) > 0 && close(file) == 0);
        state = std::strrchr(line, ')')[2];
    }
}

} // namespace

int main(int count, char **words)
{
    if (count != 2) return 2;
    std::string way = words[1];
    require(pthread_key_create(&key, [](void *keeper) { delete static_cast<Keeper *>(keeper); }) == 0);
    require(std::atexit(handler) == 0);
    of_the_handler = std::malloc(100);
    if (way == "return") {
        leave_thread_data();
        expected = ALL & ~THREAD_SPECIFIC; // these die with threads only, and the main one does not end
        return 0;
    }
    if (way == "return-while-others-allocate") {
        for (int i = 0; i < 3; i++) std::thread(allocate_for_ever).detach();
        leave_thread_data();
        expected = ALL & ~THREAD_SPECIFIC;
        usleep(50'000);
        return 0;
    }
    if (way == "exit-in-a-thread") {
        std::thread([] {
            leave_thread_data();
            expected = ALL & ~THREAD_SPECIFIC;
            std::exit(0);
        }).join();
    }
    if (way == "main-thread-leaves-first") {
        leave_thread_data();
        expected = ALL & ~THREAD_LOCAL; // glibc forgets those of a main thread that leaves
        std::thread([] {
            wait_for_the_end_of_main(); // this one is the last then, and exits the process
            allocate_and_free();
        }).detach();
        pthread_exit(nullptr);
    }
    if (way == "quick-exit") {
        std::at_quick_exit([] {
            handler();
            _exit(done == EXIT_HANDLER ? 0 : 1);
        });
        std::quick_exit(1);
    }
    return 2;
}
