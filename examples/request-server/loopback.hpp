// What any server on loopback starts with.
#pragma once

#include <cstdint>

#include "system.hpp"

// Listens on 127.0.0.1; port 0: any that is free.
descriptor listen_on_loopback(std::uint16_t port);

// The port that `listener` got.
std::uint16_t port_of(const descriptor &listener);

// Blocks SIGTERM and SIGINT in this thread and those that it starts; readable when one of them has come.
descriptor end_signals();
