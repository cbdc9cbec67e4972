// The listening side: takes connections on loopback and deals them out to workers in turn.
#pragma once

#include <cstdint>
#include <vector>

#include "catalogue.hpp"
#include "request_memory.hpp"
#include "system.hpp"

class server
{
  public:
    // Listens on 127.0.0.1; port 0: any that is free. Blocks SIGTERM and SIGINT in this thread and those that it starts.
    explicit server(std::uint16_t port);

    std::uint16_t port() const;
    // Serves until SIGTERM or SIGINT arrives, then answers what it has received, and returns.
    void run(const std::vector<product> &products, std::size_t workers, memory_mode mode);

  private:
    descriptor listener_, signals_;
};
