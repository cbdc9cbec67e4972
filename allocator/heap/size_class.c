/* The class of every small size; tests/allocator checks it against size_class_computed. */
#include "size_class.h"

/* clang-format off */
const uint8_t size_class_table[FAST_MAX / MALLOC_ALIGNMENT + 1] = {
    /*    0 */ 0,
    /*   16 */  0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15,
    /*  272 */ 16, 16, 17, 17, 18, 18, 19, 19, 20, 20, 21, 21, 22, 22, 23, 23,
    /*  528 */ 24, 24, 24, 24, 25, 25, 25, 25, 26, 26, 26, 26, 27, 27, 27, 27,
    /*  784 */ 28, 28, 28, 28, 29, 29, 29, 29, 30, 30, 30, 30, 31, 31, 31, 31,
};
/* clang-format on */
