// The server: connections on loopback, and worker threads that answer whichever of them has a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "journal.hpp"
#include "ranking.hpp"
#include "request_heap.hpp"
#include "store.hpp"
#include "system.hpp"

class server
{
  public:
    // Listens on 127.0.0.1; port 0: any that is free. `ads` and `memory` outlive it.
    server(std::uint16_t port, descriptor signals, ad_store &ads, std::size_t swing, const contexts *memory);

    std::uint16_t port() const;
    // Serves until SIGTERM or SIGINT arrives, and returns when the requests at hand are answered.
    void run(std::size_t workers);

  private:
    // Belongs to the worker whose epoll_wait returned it, until that arms it again.
    struct connection {
        descriptor socket;
        std::string input;
        bool is_closing = false;
    };

    void work_on(request_heap &memory);
    void accept_one();
    void serve(connection &client, request_heap &memory);
    void answer_all(connection &client, request_heap &memory);
    void answer_one(connection &client, const http::parsed &parsed, request_heap &memory);
    bool control(const http::request &asked, http::response &to);
    std::string status() const;
    void note(const http::request &asked, const work &done);

    descriptor listener_, signals_, stop_, epoll_;
    ad_store &ads_;
    const std::size_t swing_; // bytes, of all workers together
    const contexts *const contexts_; // NULL: not to be used
    std::size_t workers_ = 0;
    journal journal_;
    std::mutex mutex_; // of what follows
    std::unordered_map<connection *, std::unique_ptr<connection>> connections_;
};
