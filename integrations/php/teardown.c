#include "heap.h"
void teardown_start(int module_number)
{
    (void)module_number;
}
void teardown_begin_request(void)
{
}
