/* Probes that eBPF profilers, perf and debuggers attach to from outside (USDT): what they are told of sampled objects.
 *
 * The contract is that of OpenTelemetry's eBPF profiler, provider `otel_memory`, as its design document 00003-memory-profiling and
 * the change to it that names the third argument describe it
 * (github.com/open-telemetry/opentelemetry-ebpf-profiler, design-docs, and pull request 1743):
 *
 *   alloc(pointer, size, weighted_bytes)   an object is sampled; it stands for so many bytes, and so for weighted_bytes / size objects
 *   free(pointer)                          a sampled object has been freed
 *
 * Of it `mmap` and `munmap` are left out, which the document puts off as well. Profilers may read the arguments from the registers
 * of a call, without looking at where the note says they are; so that is where they are.
 *
 * A probe is an instruction that does nothing, and a note in the file that says where it is. Beside each is a count of those who
 * listen, which they raise, or have the kernel raise; so without them a probe takes a load. */
#ifndef HEAPFIT_PROBE_H
#define HEAPFIT_PROBE_H

#include "platform.h"

#if defined(__x86_64__) || defined(__aarch64__)

/* Under the names that the notes have them by. Others write to them, from outside. */
extern _Atomic(uint16_t) probe_alloc_listeners __asm__("otel_memory_alloc_semaphore");
extern _Atomic(uint16_t) probe_free_listeners __asm__("otel_memory_free_semaphore");

/* Relaxed: whoever has begun to listen a moment ago may miss what happens at that moment. */
ALWAYS_INLINE bool probe_alloc_is_heard(void)
{
    return UNLIKELY(atomic_load_explicit(&probe_alloc_listeners, memory_order_relaxed) != 0);
}

ALWAYS_INLINE bool probe_free_is_heard(void)
{
    return UNLIKELY(atomic_load_explicit(&probe_free_listeners, memory_order_relaxed) != 0);
}

COLD void probe_alloc(uintptr_t object, size_t size, size_t weighted_bytes);
COLD void probe_free(uintptr_t object);

#else /* the notes name registers */

ALWAYS_INLINE bool probe_alloc_is_heard(void)
{
    return false;
}

ALWAYS_INLINE bool probe_free_is_heard(void)
{
    return false;
}

ALWAYS_INLINE void probe_alloc(uintptr_t object, size_t size, size_t weighted_bytes)
{
    (void)object, (void)size, (void)weighted_bytes;
}

ALWAYS_INLINE void probe_free(uintptr_t object)
{
    (void)object;
}

#endif
#endif
