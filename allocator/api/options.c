#include "api.h"
void heap_configure(void) {}
