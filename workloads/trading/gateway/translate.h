// Between FIX 4.4 and the middleware's own messages.
#pragma once

#include "common/message.h"
#include "common/quickfix.h"

#include <string>

namespace trading
{

// From a broker. Throws FIX::UnsupportedMessageType or FIX::FieldNotFound, which QuickFIX turns into
// the rejection that the protocol asks for.
MessagePtr from_fix(const FIX::Message &message, const std::string &session);

// To a broker.
FIX::Message to_fix(const Message &message);

} // namespace trading
