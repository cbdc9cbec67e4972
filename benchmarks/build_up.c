/* A program that builds up what it needs and ends: small objects of mixed sizes, all written to, none freed.
 *
 *     build_up [MIB]     so much in all (default 2048)
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALLEST = 64, LARGEST = 1024, MIB = 1 << 20 };

int main(int count, char **words)
{
    size_t wanted = (size_t)(count > 1 ? atol(words[1]) : 2048) * MIB;
    void *last = NULL;
    unsigned random = 1;
    for (size_t size, done = 0; done < wanted; done += size) {
        random = random * 1103515245 + 12345;
        size = SMALLEST + random / 65536 % (LARGEST - SMALLEST);
        void **object = malloc(size);
        if (object == NULL) abort();
        memset(object, 1, size);
        *object = last;
        last = object;
    }
    _exit(last == NULL); /* as a program that leaves its memory to the kernel */
}
