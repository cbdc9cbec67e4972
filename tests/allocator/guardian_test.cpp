// A guardian puts back what a test has changed, also when the test is killed. A file stands for the kernel's setting.
#include "guardian.h"

#include "heap_isolated.h"
#include "patience.h"

#include <cstdio>
#include <fstream>
#include <string>

namespace
{

class Setting : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_GE(descriptor_ = mkstemp(path_), 0);
        write("before");
    }
    void TearDown() override
    {
        close(descriptor_);
        unlink(path_);
    }

    void write(const char *value) const
    {
        std::ofstream(path_) << value << std::flush;
    }
    std::string read() const
    {
        std::string value;
        std::ifstream(path_) >> value;
        return value;
    }
    auto put_back() const
    {
        return [this] { write("before"); };
    }

  private:
    char path_[32] = "/tmp/heapfit-setting-XXXXXX";
    int descriptor_ = -1;
};

TEST_F(Setting, IsPutBackWhenTheGuardianGoes)
{
    {
        Guardian guardian(put_back());
        write("changed");
        EXPECT_EQ("changed", read()) << "not before";
    }
    EXPECT_EQ("before", read()) << "nor later";
}

TEST_F(Setting, IsPutBackWhenTheTestIsKilled)
{
    for (int signal : {SIGKILL, SIGTERM, SIGABRT}) {
        int status = isolated::run_child([&] {
            Guardian guardian(put_back());
            write("changed");
            raise(signal);
        });
        ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal);
        EXPECT_TRUE(patience::comes_true([&] { return read() == "before"; })) << "signal " << signal;
    }
}

// As CTest does with one that takes too long.
TEST_F(Setting, IsPutBackWhenTheTestIsKilledWithAllItsChildrenAndItsGroup)
{
    int status = isolated::run_child([&] {
        ASSERT_EQ(0, setpgid(0, 0));
        Guardian guardian(put_back());
        write("changed");
        kill(0, SIGKILL);
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_TRUE(patience::comes_true([&] { return read() == "before"; }));
}

TEST_F(Setting, IsPutBackThoughAChildOfTheTestLivesOn)
{
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    int status = isolated::run_child([&] {
        close(ends[1]);
        Guardian guardian(put_back());
        write("changed");
        if (fork() == 0) { // a test's isolated process
            char byte;
            _exit(static_cast<int>(::read(ends[0], &byte, 1)));
        }
        raise(SIGKILL);
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_TRUE(patience::comes_true([&] { return read() == "before"; }));
    close(ends[1]); // it ends
    close(ends[0]);
}

} // namespace
