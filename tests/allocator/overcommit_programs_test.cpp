// Real programs under strict overcommit: with each library they print what they print without, and none of them takes promises of
// memory from the others that it has no use for.
#include "overcommit.h"

#include <array>
#include <cstdio>
#include <sstream>
#include <utility>

namespace
{

struct Ended {
    int status;
    std::string output;
};

Ended run(const std::string &command)
{
    Ended ended{-1, ""};
    FILE *pipe = popen(command.c_str(), "re");
    if (pipe == nullptr) return ended;
    std::array<char, 4096> piece;
    for (size_t size; (size = fread(piece.data(), 1, piece.size(), pipe)) > 0;) ended.output.append(piece.data(), size);
    ended.status = pclose(pipe);
    return ended;
}

// `command` is a program with its arguments, for the shell.
void expect_the_same_with_and_without(const std::string &command)
{
    overcommit::Strict strict;
    if (!strict.is_on()) GTEST_SKIP() << "only root outside of a container may set vm.overcommit_memory";
    char statistics[] = "/tmp/heapfit-overcommit-XXXXXX";
    int file = mkstemp(statistics);
    ASSERT_GE(file, 0);
    Ended without = run("exec " + command);
    EXPECT_EQ(0, without.status);
    EXPECT_NE("", without.output);
    std::istringstream libraries(HEAPFIT_TEST_LIBRARIES);
    for (std::string library; std::getline(libraries, library, ':');) {
        SCOPED_TRACE(library);
        Ended with =
            run("HEAPFIT_OPTIONS=stats_at_exit:1 LD_PRELOAD=" + library + " exec " + command + " 2> " + statistics);
        EXPECT_EQ(0, with.status);
        EXPECT_EQ(without.output, with.output);
        std::string first;
        std::ifstream(statistics) >> first;
        EXPECT_EQ("heapfit", first) << "what was to be preloaded was not";
    }
    close(file);
    unlink(statistics);
}

TEST(StrictOvercommit, Sqlite)
{
    expect_the_same_with_and_without(
        "/usr/bin/sqlite3 :memory: 'create table t (a integer primary key, b text);"
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)"
        "  insert into t select i, hex(i * i) || substr(hex(zeroblob(i % 700)), 1, i % 1000) from n;"
        "create index b on t (b); delete from t where a % 3 = 0; vacuum;"
        "select count(*), sum(length(b)), min(b), max(b) from t; select length(group_concat(b)) from t;'");
}

// What is refused is refused whole, and forgotten.
TEST(StrictOvercommit, PythonIsToldThatThereIsNoMoreAndGoesOn)
{
    expect_the_same_with_and_without("/usr/bin/python3 -c 'if True:\n"
                                     "  import threading\n"
                                     "  kept = [str(i) * (i % 50) for i in range(100000)]\n"
                                     "  def ask():\n"
                                     "    try: print(len(bytearray(16 << 30)))\n"
                                     "    except MemoryError: print(\"refused\")\n"
                                     "  for _ in range(3):\n"
                                     "    ask()\n"
                                     "    asks = threading.Thread(target=ask); asks.start(); asks.join()\n"
                                     "    print(len(bytearray(256 << 20)), len(\"\".join(kept)))\n'");
}

// A child has all its parent's memory once more, as far as the kernel has promised it.
TEST(StrictOvercommit, PythonForksThoughItHoldsMuch)
{
    expect_the_same_with_and_without("/usr/bin/python3 -c 'if True:\n"
                                     "  import os\n"
                                     "  kept = [bytes(i % 1000) for i in range(200000)]\n"
                                     "  for _ in range(3):\n"
                                     "    child = os.fork()\n"
                                     "    if child == 0:\n"
                                     "      kept = [bytes(each) for each in kept]\n"
                                     "      os._exit(sum(map(len, kept)) % 251)\n"
                                     "    print(os.waitpid(child, 0)[1])\n"
                                     "  print(sum(map(len, kept)))\n'");
}

} // namespace
