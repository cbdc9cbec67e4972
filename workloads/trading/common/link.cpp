// Links: Unix sockets with framed messages.
#include "common/link.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>

namespace trading
{

namespace
{

constexpr std::chrono::seconds meeting_timeout{15}; // all three processes start at once
constexpr std::chrono::milliseconds retry_pause{2};
constexpr std::size_t read_size = 64 * 1024;
constexpr std::uint32_t largest_message = 1024 * 1024; // far above any; a longer one is garbage

std::system_error failure(const std::string &what)
{
    return {errno, std::generic_category(), what};
}

sockaddr_un address_of(const std::string &path)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) throw std::runtime_error("socket path too long: " + path);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

Descriptor new_socket()
{
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.number() < 0) throw failure("socket");
    return socket;
}

const sockaddr *generic(const sockaddr_un &address)
{
    return reinterpret_cast<const sockaddr *>(&address);
}

// Hands every whole frame in `buffer` to `handle` and leaves what follows the last of them.
void take_frames(std::string &buffer, const Link::Handler &handle)
{
    std::size_t at = 0;
    std::uint32_t length = 0;
    while (buffer.size() - at >= sizeof length) {
        std::memcpy(&length, buffer.data() + at, sizeof length);
        if (length > largest_message) throw BadMessage("a message of " + std::to_string(length) + " bytes");
        if (buffer.size() - at - sizeof length < length) break;
        at += sizeof length;
        handle(Message::decode(std::string_view(buffer).substr(at, length)));
        at += length;
    }
    buffer.erase(0, at);
}

} // namespace

Descriptor::~Descriptor()
{
    if (number_ >= 0) ::close(number_);
}

Descriptor accept_one(const std::string &path)
{
    const Descriptor listener = new_socket();
    const sockaddr_un address = address_of(path);
    ::unlink(path.c_str());
    if (::bind(listener.number(), generic(address), sizeof address) != 0) throw failure("bind " + path);
    if (::listen(listener.number(), 1) != 0) throw failure("listen " + path);
    pollfd waiting{listener.number(), POLLIN, 0};
    const auto timeout = std::chrono::milliseconds(meeting_timeout).count();
    if (::poll(&waiting, 1, static_cast<int>(timeout)) != 1) throw std::runtime_error("nobody came to " + path);
    Descriptor peer(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.number() < 0) throw failure("accept " + path);
    ::unlink(path.c_str());
    return peer;
}

Descriptor connect_to(const std::string &path)
{
    const sockaddr_un address = address_of(path);
    const auto deadline = std::chrono::steady_clock::now() + meeting_timeout;
    for (;;) {
        Descriptor socket = new_socket();
        if (::connect(socket.number(), generic(address), sizeof address) == 0) return socket;
        if (std::chrono::steady_clock::now() > deadline) throw failure("connect " + path);
        std::this_thread::sleep_for(retry_pause);
    }
}

Link::Link(Descriptor socket)
    : socket_(std::move(socket)), writer_([this](const std::list<MessagePtr> &messages) { write(messages); })
{
}

void Link::start(Handler handle)
{
    handle_ = std::move(handle);
    reader_ = std::thread([this] { read(); });
}

void Link::close()
{
    writer_.finish();
    ::shutdown(socket_.number(), SHUT_RDWR); // wakes the reader
    if (reader_.joinable()) reader_.join();
}

void Link::read()
try {
    std::string buffer;
    std::string chunk(read_size, '\0');
    for (;;) {
        const ssize_t size = ::read(socket_.number(), chunk.data(), chunk.size());
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) return;
        buffer.append(chunk, 0, static_cast<std::size_t>(size));
        take_frames(buffer, handle_);
    }
} catch (const std::exception &error) { // what no neighbour of ours sends
    std::cerr << "trading: link given up: " << error.what() << '\n';
    ::shutdown(socket_.number(), SHUT_RDWR);
}

void Link::write(const std::list<MessagePtr> &messages)
{
    std::string frames;
    for (const MessagePtr &message : messages) message->encode(frames);
    std::size_t written = 0;
    while (written < frames.size()) {
        const ssize_t size = ::send(socket_.number(), frames.data() + written, frames.size() - written, MSG_NOSIGNAL);
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) return; // the peer is gone, and with it the need
        written += static_cast<std::size_t>(size);
    }
}

} // namespace trading
