// Connections; a worker does the rest.
#include "server.hpp"

#include <deque>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "loopback.hpp"
#include "worker.hpp"

static constexpr int descriptor_wait_ms = 10;

server::server(std::uint16_t port) : listener_(listen_on_loopback(port)), signals_(end_signals()) {}

std::uint16_t server::port() const
{
    return port_of(listener_);
}

void server::run(const std::vector<product> &products, std::size_t workers, memory_mode mode)
{
    const shop answers(products);
    std::deque<worker> threads;
    for (std::size_t i = 0; i < workers; i++) threads.emplace_back(answers, mode);
    for (std::size_t next = 0;;) {
        pollfd watched[] = {{signals_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        if (::poll(watched, std::size(watched), -1) < 0 && errno != EINTR) checked(-1, "poll");
        if (watched[0].revents != 0) return; // the workers' destructors wait for them
        descriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (connection.get() < 0) { // the client has gone, or there are too many: later
            const bool too_many = errno == EMFILE || errno == ENFILE; // and poll finds the client again at once
            if (too_many) ::poll(nullptr, 0, descriptor_wait_ms);
            continue;
        }
        const int on = 1;
        ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        threads[next++ % workers].serve(std::move(connection));
    }
}
