// Many threads at once against the model: they pass blocks to each other through mailboxes, are born and die all the
// time, and leave blocks to the destructors of thread-specific data.
#include "model.h"
#include "system.h"

namespace
{

constexpr int THREADS = 6;
constexpr size_t MAILBOXES = 64;
constexpr size_t THREAD_BUDGET = 16 * model::MIB;

struct Letter {
    model::Block block;
    std::thread::id writer;
};

std::array<std::atomic<Letter *>, MAILBOXES> mailboxes;
std::atomic<size_t> letters_of_others; // that threads have read

// The letter itself is a block of the allocator, too.
Letter *write_letter(const model::Block &block)
{
    auto *letter = static_cast<Letter *>(subject::allocate(sizeof(Letter)));
    if (letter != nullptr) *letter = {block, std::this_thread::get_id()};
    return letter;
}

// Checks and takes over the block.
void read_letter(Letter *letter, model::Blocks &blocks)
{
    if (letter == nullptr) return;
    model::expect_intact(letter->block);
    blocks.adopt(letter->block);
    letters_of_others += letter->writer != std::this_thread::get_id();
    subject::release(letter);
}

void exchange(model::Blocks &blocks)
{
    Letter *sent = nullptr;
    if (!blocks.empty()) {
        sent = write_letter(blocks.give());
        ASSERT_NE(nullptr, sent);
    }
    auto &box = mailboxes[blocks.random().below(MAILBOXES)];
    read_letter(box.exchange(sent, std::memory_order_acq_rel), blocks);
}

void empty_mailboxes(model::Blocks &blocks)
{
    for (auto &box : mailboxes) read_letter(box.exchange(nullptr, std::memory_order_acq_rel), blocks);
}

void work(model::Blocks &blocks, int steps)
{
    unsigned growth = static_cast<unsigned>(blocks.random().between(20, 80));
    for (int i = 0; i < steps && !stress::failed(); i++) {
        if (blocks.random().chance(40)) exchange(blocks);
        else blocks.step(growth);
    }
}

void run_thread(uint64_t seed, int steps)
{
    model::Blocks blocks(seed, THREAD_BUDGET);
    work(blocks, steps);
    blocks.release_all();
}

// Around what threads do with each other's blocks: that they had any, and that every block which one freed for another arrived.
class Exchange
{
  public:
    Exchange()
    {
        letters_of_others = 0;
    }
    ~Exchange()
    {
        EXPECT_GE(letters_of_others, MAILBOXES)
            << "the threads had nothing to do with each other: this test tests nothing";
        model::Blocks rest(stress::seed(), THREAD_BUDGET);
        empty_mailboxes(rest);
        rest.release_all();
    }

  private:
    model::NothingIsLost nothing_is_lost_; // dies last
};

TEST(Stress, ThreadsThatExchangeBlocks)
{
    SCOPED_TRACE(stress::how_to_repeat());
    Exchange checked;
    stress::Deadline deadline(6);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < THREADS; i++) {
        threads.emplace_back([i, &deadline] {
            uint64_t round = 0;
            do run_thread(stress::seed() + i * 1000003 + round++, 2000);
            while (!deadline.passed() && !stress::failed());
        });
    }
    for (auto &thread : threads) thread.join();
}

TEST(Stress, ThreadsThatAreBornAndDieAllTheTime)
{
    SCOPED_TRACE(stress::how_to_repeat());
    Exchange checked;
    stress::Deadline deadline(6);
    stress::Random random(stress::seed());
    std::vector<std::thread> threads(THREADS);
    for (int born = 0; (born < 4 * THREADS || !deadline.passed()) && !stress::failed(); born++) {
        std::thread &thread = threads[random.below(THREADS)];
        if (thread.joinable()) thread.join();
        int steps = static_cast<int>(random.chance(80) ? random.below(200) : random.below(4000));
        thread = std::thread(run_thread, random.next(), steps);
    }
    for (auto &thread : threads)
        if (thread.joinable()) thread.join();
}

// Every option that may change while threads run does so all the time.
TEST(Stress, OptionsThatChangeMeanwhile)
{
    SCOPED_TRACE(stress::how_to_repeat());
    Exchange checked;
    stress::Deadline deadline(6);
    stress::Random random(stress::seed());
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < THREADS; i++) {
        threads.emplace_back([i, &deadline] {
            uint64_t round = 0;
            do run_thread(stress::seed() + i * 1000003 + round++, 1000);
            while (!deadline.passed() && !stress::failed());
        });
    }
    while (!deadline.passed() && !stress::failed()) {
        subject::set_decay_ms(static_cast<unsigned>(random.chance(50) ? random.below(4) : random.below(1000)));
        subject::set_remote_free_batch(static_cast<unsigned>(random.chance(50) ? 1 : random.between(1, 4096)));
        subject::set_thread_spans(static_cast<unsigned>(random.chance(20) ? 0 : random.below(1000)));
        subject::set_free_page_threshold(static_cast<unsigned>(random.chance(50) ? 0 : random.below(model::MIB)));
        if (random.chance(20)) subject::trim_everywhere();
        std::this_thread::sleep_for(std::chrono::milliseconds(random.below(20)));
    }
    for (auto &thread : threads) thread.join();
    subject::reset_options();
}

// As many keys as it takes for some destructors to run before the allocator's own and some after.
constexpr int KEYS = 8;
// POSIX promises four rounds; in all but the last a destructor may leave new data.
#if HEAPFIT_TEST_THREAD_SANITIZER
constexpr int ROUNDS = 1; // it takes its own state of the thread down in the fourth round, before the destructors here
#else
constexpr int ROUNDS = 3;
#endif

std::array<pthread_key_t, KEYS> keys;
std::atomic<int> destroyed;

struct Legacy {
    int key;
    int rounds_left;
    model::Block block;
};

Legacy *bequeath(int key, int rounds_left, size_t size)
{
    auto *legacy = static_cast<Legacy *>(subject::allocate(sizeof(Legacy)));
    auto *start = static_cast<unsigned char *>(subject::allocate(size));
    EXPECT_NE(nullptr, legacy);
    EXPECT_NE(nullptr, start);
    *legacy = {key, rounds_left, {start, size, subject::usable_size(start), size}};
    model::fill(legacy->block);
    return legacy;
}

void destroy(void *argument)
{
    Legacy *legacy = static_cast<Legacy *>(argument);
    model::expect_intact(legacy->block);
    if (legacy->rounds_left > 0) {
        Legacy *next = bequeath(legacy->key, legacy->rounds_left - 1, legacy->block.size + 1000);
        pthread_setspecific(keys[static_cast<size_t>(legacy->key)], next);
    }
    subject::release(legacy->block.start);
    subject::release(legacy);
    destroyed++;
}

TEST(Stress, DestructorsOfThreadDataMayFreeAndAllocate)
{
    SCOPED_TRACE(stress::how_to_repeat());
    model::NothingIsLost nothing_is_lost;
    for (auto &key : keys) ASSERT_EQ(0, pthread_key_create(&key, destroy));
    stress::Deadline deadline(3);
    int threads = 0;
    destroyed = 0;
    do {
        std::thread([] {
            for (int key = 0; key < KEYS; key++)
                pthread_setspecific(keys[static_cast<size_t>(key)], bequeath(key, ROUNDS, 100u << key));
        }).join();
        threads++;
    } while (!deadline.passed() && !stress::failed());
    EXPECT_EQ(threads * KEYS * (ROUNDS + 1), destroyed);
}

} // namespace
