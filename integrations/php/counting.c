/* How often PHP allocates: with heapfit.count each call is counted, and a request's figures can be appended to a file. */
#include "heap.h"

#include "SAPI.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static struct counts counts;
static struct handlers counted;

static void *counting_malloc(size_t size)
{
    counts.mallocs++;
    counts.malloc_bytes += size;
    return counted.malloc(size);
}

static void counting_free(void *pointer)
{
    counts.frees++;
    counted.free(pointer);
}

static void *counting_realloc(void *pointer, size_t size)
{
    counts.reallocs++;
    counts.realloc_bytes += size;
    return counted.realloc(pointer, size);
}

struct handlers counting_handlers(struct handlers handlers)
{
    counted = handlers;
    return (struct handlers){counting_malloc, counting_free, counting_realloc};
}

struct counts counting_now(void)
{
    return counts;
}

/* One write for one line, so that the lines of several processes do not mix. */
static void append(const char *file)
{
    char line[512];
    struct usage usage = functions_usage();
    const char *uri = SG(request_info).request_uri != NULL ? SG(request_info).request_uri
                      : SG(request_info).path_translated != NULL ? SG(request_info).path_translated
                                                                 : "-";
    int length = snprintf(line, sizeof line, "%zu\t%zu\t%zu\t%zu\t%zu\t%zu\t%zu\t%.300s\n", counts.mallocs, counts.frees,
                          counts.reallocs, counts.malloc_bytes, counts.realloc_bytes, usage.peak, usage.footprint_peak, uri);
    int descriptor = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0) return;
    if (write(descriptor, line, (size_t)length) < 0) { /* a study notices that lines are missing */
    }
    close(descriptor);
}

void counting_end_request(void)
{
    if (settings.count_file != NULL && *settings.count_file != '\0') append(settings.count_file);
    counts = (struct counts){0};
}
