/* A library with a wrapper, to be loaded and unloaded. */
unsigned plugin_wrapper(unsigned (*allocate)(void));

unsigned plugin_wrapper(unsigned (*allocate)(void))
{
    unsigned group = allocate();
    __asm__ volatile(""); /* not a jump */
    return group;
}
