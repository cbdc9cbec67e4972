// A thread that serves connections, and all that it alone uses: its epoll, its connections, its requests' memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "request_memory.hpp"
#include "shop.hpp"
#include "system.hpp"

class worker
{
  public:
    // Starts the thread. `answers` outlives the worker.
    worker(const shop &answers, memory_mode mode);
    // Answers what has arrived, closes all connections, ends the thread.
    ~worker();

    // Give it a connection, a socket that does not block. Any thread may.
    void serve(descriptor connection);

  private:
    struct connection {
        descriptor socket;
        std::string input, output; // they live longer than a request, so they are no business of its memory
        bool closing = false;      // once the output is sent
    };

    void run();
    void on_event(int socket, std::uint32_t events);
    bool receive(connection &from);
    void answer_all(connection &from);
    void answer(connection &to, const http::parsed &parsed);
    bool send(connection &to);

    const shop &answers_;
    const memory_mode mode_;
    descriptor epoll_, stop_;
    std::unordered_map<int, connection> connections_; // by socket; the thread's own
    std::unique_ptr<request_memory> memory_;          // likewise
    std::thread thread_;                              // last: it uses all the others
};
