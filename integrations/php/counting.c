/* How often PHP allocates: with heapfit.count each call is counted, and a request's figures can be appended to a file. */
#include "heap.h"

#include "SAPI.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static struct counts counts;
static struct handlers counted;

enum { PAGE_MAX = 300 };

/* Of the request that runs; PHP has forgotten it when the figures are written. */
static char page[PAGE_MAX];

void counting_begin_request(void)
{
    const sapi_request_info *request = &SG(request_info);
    const char *name = request->request_uri != NULL ? request->request_uri : request->path_translated;
    snprintf(page, sizeof page, "%s", name != NULL ? name : "-");
}

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
    char line[PAGE_MAX + 200];
    struct usage usage = functions_usage();
    int length =
        snprintf(line, sizeof line, "%zu\t%zu\t%zu\t%zu\t%zu\t%zu\t%zu\t%s\n", counts.mallocs, counts.frees,
                 counts.reallocs, counts.malloc_bytes, counts.realloc_bytes, usage.peak, usage.footprint_peak, page);
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
