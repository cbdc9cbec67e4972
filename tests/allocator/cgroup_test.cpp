// What control groups say, read from files as kernels and container engines have them.
#include "heap_internals.h"
#include "system.h"

#include <filesystem>

namespace
{

constexpr size_t MIB = size_t{1} << 20;
// What version 1 says where there is no limit.
constexpr const char *NO_LIMIT = "9223372036854771712\n";

class ControlGroups : public testing::Test
{
  public:
    ~ControlGroups() override
    {
        std::filesystem::remove_all(root_);
    }

  protected:
    void write(const std::string &path, const std::string &content) const
    {
        std::filesystem::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << content;
    }

    void is_in(const std::string &groups) const
    {
        write("self", groups);
    }

    platform_memory read() const
    {
        std::string self = root_ / "self", fs = root_ / "fs";
        platform_memory_files files = {self.c_str(), fs.c_str()};
        platform_memory memory;
        errno = EDOM;
        platform_memory_read(&files, &memory);
        EXPECT_EQ(EDOM, errno) << "errno is the program's";
        return memory;
    }

    void version_1(const std::string &path, const std::string &limit, size_t used, unsigned failures = 0) const
    {
        std::string folder = "fs/memory" + path;
        write(folder + "/memory.limit_in_bytes", limit);
        write(folder + "/memory.usage_in_bytes", std::to_string(used) + "\n");
        write(folder + "/memory.failcnt", std::to_string(failures) + "\n");
    }

    void version_2(const std::string &path, const std::string &most, const std::string &high, size_t used) const
    {
        std::string folder = "fs" + path;
        write(folder + "/memory.max", most + "\n");
        write(folder + "/memory.high", high + "\n");
        write(folder + "/memory.current", std::to_string(used) + "\n");
    }

    std::filesystem::path root_ = testing::TempDir() + "heapfit-groups-" + std::to_string(getpid());
};

std::string mib(size_t number)
{
    return std::to_string(number * MIB);
}

TEST_F(ControlGroups, Version2)
{
    is_in("0::/system.slice/shop.service\n");
    version_2("/system.slice/shop.service", mib(512), "max", 100 * MIB);
    version_2("/system.slice", "max", "max", 3000 * MIB);
    platform_memory memory = read();
    EXPECT_EQ(512 * MIB, memory.limit);
    EXPECT_EQ(100 * MIB, memory.used);
    EXPECT_EQ(0u, memory.events);
}

TEST_F(ControlGroups, TheGroupThatLeavesTheLeastRoomCounts)
{
    is_in("0::/kubepods.slice/pod.slice/container\n");
    version_2("/kubepods.slice/pod.slice/container", mib(512), "max", 100 * MIB);
    version_2("/kubepods.slice/pod.slice", mib(600), "max", 550 * MIB); /* a neighbour's */
    version_2("/kubepods.slice", mib(8000), "max", 4000 * MIB);
    platform_memory memory = read();
    EXPECT_EQ(600 * MIB, memory.limit);
    EXPECT_EQ(550 * MIB, memory.used);
    version_2("/kubepods.slice", mib(4000), "max", 4100 * MIB); /* beyond */
    EXPECT_EQ(4000 * MIB, read().limit);
}

TEST_F(ControlGroups, Version1)
{
    is_in("12:cpu,cpuacct:/docker/0123\n11:hugetlb:/\n4:memory:/docker/0123\n1:name=systemd:/docker/0123\n");
    version_1("/docker/0123", mib(512) + "\n", 100 * MIB, 7);
    version_1("/docker", NO_LIMIT, 900 * MIB);
    version_1("", NO_LIMIT, 900 * MIB, 3);
    platform_memory memory = read();
    EXPECT_EQ(512 * MIB, memory.limit);
    EXPECT_EQ(100 * MIB, memory.used);
    EXPECT_EQ(7u, memory.events);
}

TEST_F(ControlGroups, WhatTheKernelKeepsOfFilesIsNotUsed)
{
    is_in("0::/shop\n");
    version_2("/shop", mib(512), "max", 500 * MIB);
    write("fs/shop/memory.stat", "anon 104857600\nfile 367001600\ninactive_file " + mib(300) + "\nactive_file " +
                                     mib(50) + "\nunevictable 0\n");
    EXPECT_EQ(150 * MIB, read().used);
    is_in("4:memory:/shop\n");
    version_1("/shop", mib(512) + "\n", 500 * MIB);
    write("fs/memory/shop/memory.stat", "cache 1\ninactive_file 5\ntotal_cache 1\ntotal_inactive_file " + mib(100) +
                                            "\ntotal_active_file " + mib(1) + "\n");
    EXPECT_EQ(399 * MIB, read().used);
}

TEST_F(ControlGroups, StallsOfTheOwnGroup)
{
    is_in("0::/a/b\n");
    write("fs/a/b/memory.pressure", "some avg10=1.53 avg60=0.87 avg300=0.22 total=58761459\n"
                                    "full avg10=0.00 avg60=0.13 avg300=0.00 total=12345\n");
    write("fs/a/memory.pressure", "some avg10=1.53 avg60=0.87 avg300=0.22 total=1\n");
    EXPECT_EQ(58761459u, read().stalled_us);
}

TEST_F(ControlGroups, WhatMakesNoSenseIsNoLimit)
{
    is_in("nonsense\n\n::::\n4:memory\n0::relative\n");
    EXPECT_EQ(SIZE_MAX, read().limit);
    is_in("0::/shop\n");
    for (const char *limit : {"", "many", "-1", "99999999999999999999999999"}) {
        version_2("/shop", limit, limit, MIB);
        EXPECT_EQ(SIZE_MAX, read().limit) << limit;
    }
    version_2("/shop", mib(1), "max", MIB);
    write("fs/shop/memory.current", "?\n");
    EXPECT_EQ(SIZE_MAX, read().limit);
    is_in("0::/" + std::string(5000, 'a') + "\n");
    version_2("", mib(7), "max", MIB);
    EXPECT_EQ(7 * MIB, read().limit) << "a path that is too long: the root alone";
}

TEST(StallWatch, MayBeOffOrSayNothing)
{
    platform_stall_watch watch;
    platform_stall_watch_parse("/dev/null", "", &watch);
    EXPECT_TRUE(watch.is_off);
    platform_stall_watch_parse("", "", &watch);
    EXPECT_FALSE(watch.is_off);
    EXPECT_EQ(0u, platform_stalled_us(&watch));
    for (const char *encoded : {"", "!", "c29tZQ==", "c29tZSB4IHk=", "bm9uZSAxIDI="}) {
        platform_stall_watch_parse("/proc/pressure/memory", encoded, &watch);
        EXPECT_EQ(0u, watch.window_us) << encoded;
    }
    platform_stall_watch_parse(std::string(1000, 'a').c_str(), "", &watch);
    EXPECT_STREQ("", watch.path);
}

} // namespace
