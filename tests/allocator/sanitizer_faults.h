// In a test program that includes this, accesses that are refused come to the program as they would without a sanitizer.
#pragma once

extern "C" const char *__asan_default_options()
{
    return "handle_segv=0:use_sigaltstack=0";
}
extern "C" const char *__tsan_default_options()
{
    return "handle_segv=0:use_sigaltstack=0";
}
