// QuickFIX listens on all of a machine's addresses and has no setting for that. This program is to be
// reached from this machine only, so its own `bind`, which the library finds first, says so.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int bind(int socket, const sockaddr *address, socklen_t size) noexcept
{
    if (address->sa_family != AF_INET) return static_cast<int>(syscall(SYS_bind, socket, address, size));
    sockaddr_in local = *reinterpret_cast<const sockaddr_in *>(address);
    local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return static_cast<int>(syscall(SYS_bind, socket, &local, sizeof local));
}
