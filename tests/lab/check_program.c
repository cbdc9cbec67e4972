/* A program to be checked, in versions: as it is, or with more bytes (MORE), a leak (LEAK), work (WORK).
 *
 *   checked [FILE]   with FILE, a list of numbers: the first is taken off, and so many more blocks allocated
 *   checked -        so many more as there are bytes of input
 *
 * It prints without malloc. EXIT is what it ends with.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef EXIT
#define EXIT 0
#endif
#ifdef MORE
enum { SIZE = 96 };
#else
enum { SIZE = 64 };
#endif
enum { BLOCKS = 1000, LEAKED = 4000, TURNS = 200000 };
static void *blocks[BLOCKS];
static volatile unsigned sink;

__attribute__((noinline)) static void fill(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(SIZE); /* the line that more bytes are allocated at */
    }
}

__attribute__((noinline)) static void work(void)
{
    for (unsigned i = 0; i < TURNS; i++) {
        sink += i;
    }
}

__attribute__((noinline)) static void allocate(int count)
{
    for (int i = 0; i < count; i++) {
        void *volatile block = malloc(SIZE);
        free(block);
    }
}

static int next(const char *path)
{
    char text[256] = {0};
    int file = open(path, O_RDWR);
    ssize_t length = read(file, text, sizeof text - 1);
    char *rest = strchr(text, ' ');
    if (length <= 0 || rest == NULL || lseek(file, 0, SEEK_SET) != 0 || ftruncate(file, 0) != 0 ||
        write(file, rest + 1, strlen(rest + 1)) < 0) {
        _exit(99);
    }
    return atoi(text);
}

int main(int count, char **words)
{
    fill();
    for (int i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
#ifdef LEAK
    blocks[0] = malloc(LEAKED); /* the line that leaks */
#endif
    work();
#ifdef WORK
    work();
#endif
    if (count > 1) {
        char input[256];
        allocate(strcmp(words[1], "-") == 0 ? (int)read(STDIN_FILENO, input, sizeof input) : next(words[1]));
    }
    return EXIT;
}
