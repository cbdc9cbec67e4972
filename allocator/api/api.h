/* api/: what programs call: heapfit.h, the malloc family, C++ new and delete, options, statistics. */
#ifndef HEAPFIT_API_H
#define HEAPFIT_API_H

#include "../heap/fast.h"

/* Everything else in the library is hidden. */
#define EXPORT __attribute__((visibility("default")))

#endif
