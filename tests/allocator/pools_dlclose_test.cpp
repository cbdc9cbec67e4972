// The variant's dlclose does what the C library's does, and then what is known of unmapped code is forgotten.
#include <gtest/gtest.h>

#include <dlfcn.h>

namespace
{

int forgotten;
bool was_unmapped;
void *address;

bool is_mapped(void *code)
{
    Dl_info info;
    return dladdr(code, &info) != 0;
}

} // namespace

extern "C" void chain_forget()
{
    forgotten++;
    was_unmapped = !is_mapped(address);
}

namespace
{

TEST(Dlclose, UnmapsAndThenForgets)
{
    void *library = dlopen(HEAPFIT_POOLS_PLUGIN, RTLD_NOW);
    ASSERT_TRUE(library != nullptr) << dlerror();
    address = dlsym(library, "plugin_wrapper");
    ASSERT_TRUE(is_mapped(address));
    EXPECT_EQ(0, dlclose(library));
    EXPECT_EQ(1, forgotten);
    EXPECT_TRUE(was_unmapped);
}

TEST(Dlclose, SaysWhatTheCLibrarySays)
{
    static char nothing[16 * 1024]; // that no library is open by
    EXPECT_NE(0, dlclose(nothing));
    EXPECT_TRUE(dlerror() != nullptr);
}

} // namespace
