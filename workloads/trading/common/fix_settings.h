// Settings that both ends of a FIX session share.
#pragma once

#include "common/quickfix.h"

#include <string>

namespace trading
{

constexpr char begin_string[] = "FIX.4.4";

// The defaults of all sessions, `type` being "acceptor" or "initiator", `dictionary` the file with the
// messages that may be sent.
FIX::Dictionary session_defaults(const std::string &type, const std::string &dictionary);

inline double to_fix(std::int64_t cents)
{
    return static_cast<double>(cents) / 100.0;
}

inline std::int64_t to_cents(double price)
{
    return std::llround(price * 100.0);
}

} // namespace trading
