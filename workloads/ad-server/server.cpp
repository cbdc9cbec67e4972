// Connections and routes.
#include "server.hpp"

#include <deque>
#include <exception>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "loopback.hpp"

namespace
{

constexpr std::size_t receive_size = 16 * 1024; // bytes
constexpr timeval send_timeout = {10, 0};       // a client that reads no more does not keep a worker

void watch(int epoll, int watched, std::uint32_t events, void *data, int operation)
{
    epoll_event event = {};
    event.events = events;
    event.data.ptr = data;
    checked(::epoll_ctl(epoll, operation, watched, &event), "epoll_ctl");
}

// Whether the other side has taken all of it.
bool send_all(int socket, std::string_view bytes)
{
    while (!bytes.empty()) {
        const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

} // namespace

server::server(std::uint16_t port, descriptor signals, ad_store &ads, std::size_t swing, const contexts *memory)
    : listener_(listen_on_loopback(port)), signals_(std::move(signals)),
      stop_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")), ads_(ads), swing_(swing), contexts_(memory)
{
    watch(epoll_.get(), listener_.get(), EPOLLIN, &listener_, EPOLL_CTL_ADD);
    watch(epoll_.get(), stop_.get(), EPOLLIN, nullptr, EPOLL_CTL_ADD);
}

std::uint16_t server::port() const
{
    return port_of(listener_);
}

void server::run(std::size_t workers)
{
    workers_ = workers;
    std::deque<std::thread> threads;
    for (std::size_t i = 0; i < workers; i++)
        threads.emplace_back([this] {
            request_heap memory(contexts_);
            work_on(memory);
        });
    pollfd watched = {signals_.get(), POLLIN, 0};
    while (::poll(&watched, 1, -1) < 0) {
    }
    ::eventfd_write(stop_.get(), 1);
    for (auto &each : threads) each.join();
}

// The loop of a worker, until the server stops.
void server::work_on(request_heap &memory)
{
    for (;;) {
        epoll_event event = {};
        if (::epoll_wait(epoll_.get(), &event, 1, -1) < 1) continue;
        if (event.data.ptr == nullptr) return; // nobody reads it, so each worker sees it
        if (event.data.ptr == &listener_) accept_one();
        else serve(*static_cast<connection *>(event.data.ptr), memory);
    }
}

void server::accept_one()
{
    descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() < 0) return; // another worker was faster, or the client has gone
    const int on = 1, number = socket.get();
    ::setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(number, SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof send_timeout);
    auto made = std::make_unique<connection>();
    made->socket = std::move(socket);
    connection *const client = made.get();
    {
        const std::lock_guard lock(mutex_);
        connections_.emplace(client, std::move(made));
    }
    watch(epoll_.get(), number, EPOLLIN | EPOLLONESHOT, client, EPOLL_CTL_ADD);
}

// A connection that has something to read, or has ended.
void server::serve(connection &client, request_heap &memory)
{
    char bytes[receive_size];
    const ssize_t count = ::recv(client.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) client.input.append(bytes, static_cast<std::size_t>(count));
    if (count > 0) answer_all(client, memory);
    const bool is_alive = count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
    if (is_alive && !client.is_closing) {
        watch(epoll_.get(), client.socket.get(), EPOLLIN | EPOLLONESHOT, &client, EPOLL_CTL_MOD);
        return;
    }
    const std::lock_guard lock(mutex_);
    connections_.erase(&client);
}

void server::answer_all(connection &client, request_heap &memory)
{
    std::size_t done = 0;
    while (!client.is_closing) {
        const auto parsed = http::parse(std::string_view(client.input).substr(done));
        if (parsed.state == http::progress::incomplete) break;
        answer_one(client, parsed, memory);
        done += parsed.length;
    }
    client.input.erase(0, done);
}

void server::answer_one(connection &client, const http::parsed &parsed, request_heap &memory)
{
    const bool is_whole = parsed.state == http::progress::complete;
    const bool keep_alive = is_whole && parsed.what.keep_alive;
    http::response direct(std::pmr::new_delete_resource());
    direct.status = parsed.status;
    if (!is_whole || control(parsed.what, direct)) {
        const auto bytes = http::serialise(direct, keep_alive, std::pmr::new_delete_resource());
        client.is_closing = !send_all(client.socket.get(), bytes) || !keep_alive;
        return;
    }
    const auto index = ads_.current();
    const auto make = [&](work &objects) {
        try {
            answer(*index, parsed.what, objects);
        } catch (const std::exception &) { // out of memory: caught here, before its own memory is forgotten
            objects.answer.status = 500;
        }
        objects.bytes = http::serialise(objects.answer, keep_alive, std::pmr::new_delete_resource());
    };
    memory.request(make, [&](const work &objects) {
        client.is_closing = !send_all(client.socket.get(), objects.bytes) || !keep_alive;
        note(parsed.what, objects);
    });
}

// Whether it is about the server and not about ads.
bool server::control(const http::request &asked, http::response &to)
{
    if (asked.path == "/status") {
        to.status = 200;
        to.body = status();
        return true;
    }
    if (asked.path != "/reload") return false;
    to.status = asked.method == "POST" ? 200 : 405;
    if (asked.method == "POST") ads_.begin_reload();
    return true;
}

std::string server::status() const
{
    std::string text = "pid " + std::to_string(::getpid());
    text += "\nworkers " + std::to_string(workers_);
    text += "\nads " + std::to_string(ads_.current()->size());
    text += "\nlarge_request_ads " + std::to_string(swing_ / workers_ / candidate_size);
    text += "\nmeans_to_shrink " + std::string(ads_.memory().means());
    text += "\ncontexts " + std::to_string(contexts_ != nullptr);
    text += "\nnoted " + std::to_string(journal_.noted());
    text += "\nreloading " + std::to_string(ads_.is_reloading());
    for (const auto &each : ads_.reloads())
        text += "\nreload " + std::to_string(each.begin) + ' ' + std::to_string(each.end);
    return text + '\n';
}

void server::note(const http::request &asked, const work &done)
{
    auto made = std::make_unique<shown>();
    made->query = asked.query;
    for (const auto *each : done.best) made->lines.push_back(std::make_unique<std::string>(each->key));
    journal_.note(std::move(made));
}
