// The loop of a worker: wait, receive, answer, send.
#include "worker.hpp"

#include <array>
#include <exception>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

namespace
{

constexpr std::size_t receive_size = 16 * 1024; // bytes
constexpr int events_max = 64;

void watch(int epoll, int watched, std::uint32_t events, int operation)
{
    epoll_event event = {};
    event.events = events;
    event.data.fd = watched;
    checked(::epoll_ctl(epoll, operation, watched, &event), "epoll_ctl");
}

bool would_block()
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

} // namespace

worker::worker(const shop &answers, memory_mode mode)
    : answers_(answers), mode_(mode), epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      stop_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"))
{
    watch(epoll_.get(), stop_.get(), EPOLLIN, EPOLL_CTL_ADD);
    thread_ = std::thread([this] { run(); });
}

worker::~worker()
{
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
}

void worker::serve(descriptor connection)
{
    const int socket = connection.release(); // the thread takes it when its first event arrives
    watch(epoll_.get(), socket, EPOLLIN, EPOLL_CTL_ADD);
}

void worker::run()
{
    memory_ = std::make_unique<request_memory>(mode_); // here: who makes a context owns it
    for (bool stopping = false; !stopping;) {
        std::array<epoll_event, events_max> events;
        const int count = ::epoll_wait(epoll_.get(), events.data(), events_max, -1);
        for (int i = 0; i < count; i++) {
            const auto &event = events[static_cast<std::size_t>(i)];
            if (event.data.fd == stop_.get()) stopping = true;
            else on_event(event.data.fd, event.events);
        }
    }
    connections_.clear();
    memory_.reset();
}

void worker::on_event(int socket, std::uint32_t events)
{
    connection &client = connections_[socket];
    if (client.socket.get() < 0) client.socket = descriptor(socket);
    const bool had_output = !client.output.empty();
    bool alive = (events & EPOLLIN) == 0 || receive(client);
    answer_all(client);
    alive = send(client) && alive && (events & EPOLLERR) == 0;
    const bool has_output = !client.output.empty();
    if (!alive || (client.closing && !has_output)) connections_.erase(socket);
    else if (had_output != has_output) // a slow reader gets no more answers before it has read these
        watch(epoll_.get(), socket, has_output ? EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
}

// Whether the other side is still there.
bool worker::receive(connection &from)
{
    std::array<char, receive_size> bytes;
    const ssize_t count = ::recv(from.socket.get(), bytes.data(), bytes.size(), 0);
    if (count > 0) from.input.append(bytes.data(), static_cast<std::size_t>(count));
    return count > 0 || (count < 0 && would_block());
}

// Every request that has arrived in full; a client may send several at once.
void worker::answer_all(connection &from)
{
    std::size_t done = 0;
    while (!from.closing) {
        const auto parsed = http::parse(std::string_view(from.input).substr(done));
        if (parsed.state == http::progress::incomplete) break;
        answer(from, parsed);
        done += parsed.length;
    }
    from.input.erase(0, done);
}

void worker::answer(connection &to, const http::parsed &parsed)
{
    const bool whole = parsed.state == http::progress::complete;
    const bool keep_alive = whole && parsed.what.keep_alive;
    const auto handle = [&](std::pmr::memory_resource *resource) {
        http::response made(resource);
        made.status = parsed.status;
        try {
            if (whole) made = answers_.answer(parsed.what, resource);
        } catch (const std::exception &) { // out of memory: caught here, before its own memory is forgotten
            made.status = 500;
            made.body.clear();
        }
        return http::serialise(made, keep_alive, resource);
    };
    memory_->request(handle, [&](const std::pmr::string &bytes) { to.output.append(bytes); });
    to.closing = !keep_alive;
}

// Whether the other side is still there.
bool worker::send(connection &to)
{
    if (to.output.empty()) return true;
    const ssize_t count = ::send(to.socket.get(), to.output.data(), to.output.size(), MSG_NOSIGNAL);
    if (count > 0) to.output.erase(0, static_cast<std::size_t>(count));
    return count >= 0 || would_block();
}
