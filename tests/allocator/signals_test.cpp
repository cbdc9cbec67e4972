// Signals arrive at any moment inside the allocator, and their handlers do not allocate: nothing that a thread was in the
// midst of is spoilt, no lock is lost, and a wait for one that a signal interrupts is taken up again.
#include "model.h"
#include "system.h"

namespace
{

constexpr int THREADS = 4;
constexpr unsigned SIGNALS_MIN = 100;
constexpr size_t HANDLER_STACK = 8 * 1024;

std::atomic<unsigned> signals_taken;

void handler(int)
{
    int saved = errno;
    volatile char used[HANDLER_STACK]; // deeper than any frame of the allocator's
    for (size_t i = 0; i < HANDLER_STACK; i += 64) used[i] = 1;
    signals_taken++;
    errno = saved + used[0] - 1;
}

// Without SA_RESTART: system calls that are interrupted say so.
void install_handler()
{
    struct sigaction action = {};
    action.sa_handler = handler;
    ASSERT_EQ(0, sigaction(SIGUSR1, &action, nullptr));
}

void be_busy(uint64_t seed, const std::atomic<bool> &stop)
{
    model::Blocks blocks(seed, 4 * model::MIB);
    while (!stop && !stress::failed()) {
        for (int i = 0; i < 100; i++) blocks.step(50);
        errno = E2BIG;
        subject::release(subject::allocate(100'000));
        ASSERT_EQ(E2BIG, errno);
        if (blocks.random().chance(5)) subject::trim();
    }
    blocks.release_all();
}

TEST(Signals, MayInterruptTheAllocatorAnywhere)
{
    SCOPED_TRACE(stress::how_to_repeat());
    install_handler();
    subject::set_decay_ms(0);
    stress::Deadline deadline(4);
    stress::Random random(stress::seed());
    std::atomic<bool> stop{false};
    std::array<std::thread, THREADS> threads;
    for (auto &thread : threads) thread = std::thread([seed = random.next(), &stop] { be_busy(seed, stop); });
    do {
        for (int i = 0; i < 100; i++) {
            pthread_kill(threads[random.below(THREADS)].native_handle(), SIGUSR1);
            std::this_thread::sleep_for(std::chrono::microseconds(random.below(50)));
        }
    } while ((!deadline.passed() || signals_taken < SIGNALS_MIN) && !stress::failed()); // those that wait are merged
    stop = true;
    for (auto &thread : threads) thread.join();
    subject::reset_options();
}

} // namespace
