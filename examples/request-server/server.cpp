// Sockets and signals; a worker does the rest.
#include "server.hpp"

#include <csignal>
#include <deque>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "worker.hpp"

namespace
{

descriptor end_signals()
{
    sigset_t ends;
    ::sigemptyset(&ends);
    ::sigaddset(&ends, SIGTERM);
    ::sigaddset(&ends, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    return descriptor(checked(::signalfd(-1, &ends, SFD_CLOEXEC), "signalfd"));
}

descriptor listen_on_loopback(std::uint16_t port)
{
    descriptor listener(checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket"));
    const int on = 1;
    checked(::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "setsockopt");
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    checked(::bind(listener.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address), "bind");
    checked(::listen(listener.get(), SOMAXCONN), "listen");
    return listener;
}

} // namespace

server::server(std::uint16_t port) : listener_(listen_on_loopback(port)), signals_(end_signals()) {}

std::uint16_t server::port() const
{
    sockaddr_in address = {};
    socklen_t size = sizeof address;
    checked(::getsockname(listener_.get(), reinterpret_cast<sockaddr *>(&address), &size), "getsockname");
    return ntohs(address.sin_port);
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
        if (connection.get() < 0) continue; // the client has gone, or there are too many: later
        const int on = 1;
        ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        threads[next++ % workers].serve(std::move(connection));
    }
}
