/* The frames of a Python program, as its interpreter has them: for site.c, which puts them in the place of the interpreter's loop.
 *
 * CPython 3.11 and later run a Python function that another has called in the same loop, so that a chain of return addresses says
 * nothing of the program. But the interpreter keeps a list of the thread's frames, the innermost first, and something on the stack of
 * each call of the loop: by that the two are brought together.
 */
#ifndef HEAPFIT_RECORD_PYTHON_H
#define HEAPFIT_RECORD_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a frame is in its program. By the key it is known again: of a code object that has taken the place of another it is
 * another one, unless all that it is made of has the same addresses, too. */
struct python_frame {
    uint64_t key;
    uintptr_t code; /* the code object */
    uintptr_t instruction;
    uintptr_t loop; /* lies in the stack frame of the call of the loop that runs it; 0: not known */
};

enum { PYTHON_FRAMES_MAX = 64 };

/* Called once at the start: whether there is an interpreter of a known version, and what it looks like. */
void python_start(void);

/* Whether this thread may have frames of Python. */
bool python_is_here(void);

/* The innermost frames of this thread, at most `most`: how many. It reads the interpreter's structures and calls nothing of it;
 * what cannot be read, or is not what it should be, ends it. */
size_t python_frames(struct python_frame *frames, size_t most);

/* Whether a return address is in the interpreter's loop, as far as that is one piece. */
bool python_is_loop(uintptr_t return_address);

/* "LINE FILE\tFUNCTION" of a frame, LINE in hexadecimal, terminated; 0: it cannot be told, else its length. By one thread at a time. */
size_t python_describe(const struct python_frame *frame, char *text, size_t room);

#endif
