/* Functions that are not one to the compiler, each with a call of its own. */
#define SITE(n)                                                                                                        \
    static __attribute__((noinline)) void *site_##n(size_t size)                                                       \
    {                                                                                                                  \
        void *object = malloc(size);                                                                                   \
        if (object != NULL) memset(object, n + 1, size); /* so it does not look free */                                \
        __asm__ volatile("" : : "r"(object), "r"(n) : "memory");                                                       \
        return object;                                                                                                 \
    }
