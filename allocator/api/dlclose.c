/* dlclose, in the variant with pools: what is known of code that it unmaps must be forgotten.
 *
 * The C library itself unmaps some of its modules (of iconv, of name services) without a call of this name. What is known of
 * those stays, which can put an object into another pool than it should be in, and no more.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../pools/pools.h"
#include "api.h"

#include <dlfcn.h>

EXPORT int dlclose(void *handle)
{
    union {
        void *symbol;
        int (*call)(void *handle);
    } next = {dlsym(RTLD_NEXT, "dlclose")};
    int result = next.call != NULL ? next.call(handle) : 0; /* in a static executable nothing is unmapped */
    chain_forget();
    return result;
}
