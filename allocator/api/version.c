/* Which heapfit this is. The build passes the version in, so that it is written down once. */
#include "heapfit/heapfit.h"

const char *hf_version(void)
{
    return HEAPFIT_VERSION;
}
