/* The probes' places, and the notes by which they are found: see probe.h.
 *
 * A note is laid out as sourceware.org/systemtap/wiki/UserSpaceProbeImplementation says: owner "stapsdt", type 3; the addresses of the
 * probe, of the section .stapsdt.base and of the count of listeners; then, each ended by a zero, the provider, the probe's name, and
 * its arguments, as SIZE@REGISTER. It is not loaded. The difference between the second address and where that section is at last
 * tells readers by how much prelink has moved the file; all probes of a file share the section.
 */
#include "probe.h"

#if defined(__x86_64__) || defined(__aarch64__)

#define LISTENERS __attribute__((section(".probes"), used, visibility("hidden")))
LISTENERS _Atomic(uint16_t) probe_alloc_listeners;
LISTENERS _Atomic(uint16_t) probe_free_listeners;

__asm__(".pushsection .stapsdt.base, \"aG\", %progbits, .stapsdt.base, comdat\n"
        ".weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n"
        "_.stapsdt.base: .space 1\n"
        ".size _.stapsdt.base, 1\n"
        ".popsection");

#define PROBE(name, arguments)                                                                                         \
    "990: nop\n"                                                                                                       \
    ".pushsection .note.stapsdt, \"\", %%note\n"                                                                       \
    ".balign 4\n"                                                                                                      \
    ".4byte 992f - 991f, 994f - 993f, 3\n"                                                                             \
    "991: .asciz \"stapsdt\"\n"                                                                                        \
    "992: .balign 4\n"                                                                                                 \
    "993: .8byte 990b, _.stapsdt.base, otel_memory_" name "_semaphore\n"                                               \
    ".asciz \"otel_memory\", \"" name "\", \"" arguments "\"\n"                                                        \
    "994: .balign 4\n"                                                                                                 \
    ".popsection"

#if defined(__x86_64__)
#define FIRST "rdi"
#define SECOND "rsi"
#define THIRD "rdx"
#define AT(register) "8@%%" register
#else
#define FIRST "x0"
#define SECOND "x1"
#define THIRD "x2"
#define AT(register) "8@" register
#endif

NOINLINE COLD void probe_alloc(uintptr_t object, size_t size, size_t weighted_bytes)
{
    register uintptr_t first __asm__(FIRST) = object;
    register size_t second __asm__(SECOND) = size;
    register size_t third __asm__(THIRD) = weighted_bytes;
    __asm__ volatile(PROBE("alloc", AT(FIRST) " " AT(SECOND) " " AT(THIRD)) : : "r"(first), "r"(second), "r"(third));
}

NOINLINE COLD void probe_free(uintptr_t object)
{
    register uintptr_t first __asm__(FIRST) = object;
    __asm__ volatile(PROBE("free", AT(FIRST)) : : "r"(first));
}

#endif
