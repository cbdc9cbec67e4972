// The kernel promises no more memory than there is: a setting of the whole machine, which is put back however the test ends.
// Other programs run under it, too, for the moment that a test takes: it leaves them plenty, and a test asks for all of it only in
// requests that are refused whole.
#ifndef HEAPFIT_TESTS_OVERCOMMIT_H
#define HEAPFIT_TESTS_OVERCOMMIT_H

#include "guardian.h"
#include "system.h"

namespace overcommit
{

constexpr size_t PLENTY = size_t{8} << 30; // more than is promised already

inline std::string setting_path(const char *name)
{
    return std::string("/proc/sys/vm/") + name;
}

inline std::string setting(const char *name)
{
    std::string value;
    std::ifstream(setting_path(name)) >> value;
    return value;
}

inline bool set(const char *name, const std::string &value)
{
    std::ofstream file(setting_path(name));
    file << value << std::flush;
    return file.good();
}

// The three as they are now. The kernel sets overcommit_ratio to 0 when overcommit_kbytes is set, and the other way round: so of
// the two the one that rules is put back.
inline auto as_it_is()
{
    return [mode = setting("overcommit_memory"), kbytes = setting("overcommit_kbytes"),
            ratio = setting("overcommit_ratio")] {
        set("overcommit_memory", mode);
        if (kbytes != "0") set("overcommit_kbytes", kbytes);
        else set("overcommit_ratio", ratio);
    };
}

inline size_t promised_kib()
{
    std::ifstream info("/proc/meminfo");
    std::string name, unit;
    size_t kib;
    while (info >> name >> kib) {
        std::getline(info, unit);
        if (name == "Committed_AS:") return kib;
    }
    return 0;
}

// As long as it lives. `is_on` is false where the kernel does not let us.
class Strict
{
  public:
    bool is_on() const
    {
        return is_on_;
    }

  private:
    Guardian guardian_{as_it_is()};
    bool is_on_ =
        set("overcommit_kbytes", std::to_string(promised_kib() + PLENTY / 1024)) && set("overcommit_memory", "2");
};

} // namespace overcommit

#endif
