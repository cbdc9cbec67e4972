// FIX session settings, and the time of day at which a session may be open.
#include "common/fix_settings.h"

#include <ctime>

namespace trading
{

namespace
{

constexpr std::time_t hour = 3600;

std::string utc_time_of_day(std::time_t moment)
{
    std::tm parts{};
    gmtime_r(&moment, &parts);
    char text[sizeof "00:00:00"];
    std::strftime(text, sizeof text, "%H:%M:%S", &parts);
    return text;
}

} // namespace

FIX::Dictionary session_defaults(const std::string &type, const std::string &dictionary)
{
    FIX::Dictionary defaults;
    defaults.setString(FIX::CONNECTION_TYPE, type);
    // QuickFIX begins sequences anew when a session's day ends: that moment is kept far from now.
    const std::time_t now = std::time(nullptr);
    defaults.setString(FIX::START_TIME, utc_time_of_day(now - 2 * hour));
    defaults.setString(FIX::END_TIME, utc_time_of_day(now - 3 * hour));
    defaults.setString(FIX::HEARTBTINT, "30");
    defaults.setString(FIX::RECONNECT_INTERVAL, "1");
    defaults.setString(FIX::RESET_ON_LOGON, "Y");
    defaults.setString(FIX::USE_DATA_DICTIONARY, "Y");
    defaults.setString(FIX::DATA_DICTIONARY, dictionary);
    defaults.setString(FIX::SOCKET_NODELAY, "Y");
    return defaults;
}

} // namespace trading
