#include "loopback.hpp"

#include <csignal>

#include <netinet/in.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

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

std::uint16_t port_of(const descriptor &listener)
{
    sockaddr_in address = {};
    socklen_t size = sizeof address;
    checked(::getsockname(listener.get(), reinterpret_cast<sockaddr *>(&address), &size), "getsockname");
    return ntohs(address.sin_port);
}

descriptor end_signals()
{
    sigset_t ends;
    ::sigemptyset(&ends);
    ::sigaddset(&ends, SIGTERM);
    ::sigaddset(&ends, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    return descriptor(checked(::signalfd(-1, &ends, SFD_CLOEXEC), "signalfd"));
}
