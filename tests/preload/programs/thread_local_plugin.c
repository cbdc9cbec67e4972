/* A library whose thread-local memory the dynamic linker allocates when a thread first touches it: a large object. */
enum { BYTES = 2 << 20, PAGE = 4096 };

static __thread volatile char own[BYTES];

void touch(void);

void touch(void)
{
    for (int i = 0; i < BYTES; i += PAGE) own[i] = 1;
}
