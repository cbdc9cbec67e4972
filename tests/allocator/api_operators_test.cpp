// C++ operator new and delete, in every form, and what they owe to new-handlers and exceptions. Built twice: linked with
// the shared library, and with the static one.

#include "heapfit/heapfit.h"
#include "system.h"

namespace
{

volatile size_t too_much = static_cast<size_t>(PTRDIFF_MAX) + 1;
constexpr auto page = std::align_val_t{4096};

void drop(void *) {}

bool is_page_aligned(const void *pointer)
{
    return reinterpret_cast<uintptr_t>(pointer) % 4096 == 0;
}

int handler_calls;

// Installs a new-handler for as long as it lives.
class HandlerInstalled
{
  public:
    explicit HandlerInstalled(std::new_handler handler) : before_(std::set_new_handler(handler))
    {
        handler_calls = 0;
    }
    ~HandlerInstalled()
    {
        std::set_new_handler(before_);
    }
    HandlerInstalled(const HandlerInstalled &) = delete;
    HandlerInstalled &operator=(const HandlerInstalled &) = delete;

  private:
    std::new_handler before_;
};

void give_up_after_three_calls()
{
    if (++handler_calls == 3) std::set_new_handler(nullptr);
}

void throw_at_once()
{
    handler_calls++;
    throw std::bad_alloc();
}

TEST(Operators, AllFormsOfNewGiveHeapfitsMemory)
{
    for (size_t size : {size_t{0}, size_t{1}, size_t{100}, size_t{5000}, size_t{100000}, size_t{10000000}}) {
        void *objects[] = {
            operator new(size),
            operator new[](size),
            operator new(size, std::nothrow),
            operator new[](size, std::nothrow),
        };
        void *aligned[] = {
            operator new(size, page),
            operator new[](size, page),
            operator new(size, page, std::nothrow),
            operator new[](size, page, std::nothrow),
        };
        for (void *object : objects) {
            EXPECT_TRUE(hf_is_ours(object)) << size;
            EXPECT_GE(malloc_usable_size(object), size);
        }
        for (void *object : aligned) {
            EXPECT_TRUE(hf_is_ours(object)) << size;
            EXPECT_TRUE(is_page_aligned(object)) << size;
        }
        operator delete(objects[0]);
        operator delete[](objects[1]);
        operator delete(objects[2], std::nothrow);
        operator delete[](objects[3], std::nothrow);
        operator delete(aligned[0], page);
        operator delete[](aligned[1], page);
        operator delete(aligned[2], page, std::nothrow);
        operator delete[](aligned[3], page, std::nothrow);
    }
}

TEST(Operators, DeletesIgnoreNull)
{
    operator delete(nullptr);
    operator delete[](nullptr);
    operator delete(nullptr, size_t{10});
    operator delete[](nullptr, size_t{10});
    operator delete(nullptr, std::nothrow);
    operator delete[](nullptr, std::nothrow);
    operator delete(nullptr, page);
    operator delete[](nullptr, page);
    operator delete(nullptr, page, std::nothrow);
    operator delete[](nullptr, page, std::nothrow);
    operator delete(nullptr, size_t{10}, page);
    operator delete[](nullptr, size_t{10}, page);
}

TEST(Operators, ThrowBadAllocWithoutAHandler)
{
    EXPECT_THROW(drop(operator new(too_much)), std::bad_alloc);
    EXPECT_THROW(drop(operator new[](too_much)), std::bad_alloc);
    EXPECT_THROW(drop(operator new(too_much, page)), std::bad_alloc);
    EXPECT_THROW(drop(operator new[](too_much, page)), std::bad_alloc);
}

TEST(Operators, NothrowFormsGiveNullWithoutAHandler)
{
    EXPECT_EQ(operator new(too_much, std::nothrow), nullptr);
    EXPECT_EQ(operator new[](too_much, std::nothrow), nullptr);
    EXPECT_EQ(operator new(too_much, page, std::nothrow), nullptr);
    EXPECT_EQ(operator new[](too_much, page, std::nothrow), nullptr);
}

TEST(NewHandler, IsCalledUntilItGivesUp)
{
    HandlerInstalled installed(give_up_after_three_calls);
    EXPECT_THROW(drop(operator new(too_much)), std::bad_alloc);
    EXPECT_EQ(handler_calls, 3);
}

TEST(NewHandler, ThatThrowsMakesTheNothrowFormsGiveNull)
{
    HandlerInstalled installed(throw_at_once);
    EXPECT_EQ(operator new(too_much, std::nothrow), nullptr);
    EXPECT_EQ(operator new[](too_much, std::nothrow), nullptr);
    EXPECT_EQ(operator new(too_much, page, std::nothrow), nullptr);
    EXPECT_EQ(operator new[](too_much, page, std::nothrow), nullptr);
    EXPECT_EQ(handler_calls, 4);
}

void *ballast;

void drop_ballast()
{
    handler_calls++;
    if (ballast == nullptr) throw std::bad_alloc();
    free(ballast);
    ballast = nullptr;
}

// With 64 MiB of address space, of which two objects of 40 MiB cannot be had at a time.
[[noreturn]] void make_room_in_a_small_heap()
{
    constexpr size_t size = size_t{40} << 20;
    ballast = malloc(size);
    std::set_new_handler(drop_ballast);
    void *object = operator new(size);
    exit(object != nullptr && hf_is_ours(object) && handler_calls == 1 ? 0 : 1);
}

TEST(NewHandler, ThatMakesRoomLetsNewSucceed)
{
    testing::GTEST_FLAG(death_test_style) = "threadsafe"; // the program is started anew, with this option:
    setenv("HEAPFIT_OPTIONS", "reservation:64m", 1);
    EXPECT_EXIT(make_room_in_a_small_heap(), testing::ExitedWithCode(0), "^$");
}

struct ThrowsWhenConstructed {
    ThrowsWhenConstructed()
    {
        throw std::runtime_error("no");
    }
};

} // namespace

TEST(Operators, FreeWhatAConstructorThatThrowsLeftBehind)
{
    hf_stats before, after;
    ASSERT_EQ(hf_stats_get(&before, sizeof before), 0);
    for (int i = 0; i < 1000; i++) {
        EXPECT_THROW(new ThrowsWhenConstructed, std::runtime_error);
        EXPECT_THROW(new (std::nothrow) ThrowsWhenConstructed, std::runtime_error);
    }
    ASSERT_EQ(hf_stats_get(&after, sizeof after), 0);
    EXPECT_LT(after.live_objects, before.live_objects + 500); // some may stay in a quarantine
}
