/* Runs a program on what looks like Linux 4.18: old_kernel PROGRAM ARGUMENT...
 *
 * A filter answers as that kernel would: ENOSYS to every later system call, EINVAL to later kinds of advice and of moving
 * pages. Calls that came after 4.18 have the same numbers on all processors, from 424 (pidfd_send_signal, Linux 5.1) on.
 */
#include "system.h"

#include <linux/audit.h>

enum {
    FIRST_LATER_CALL = 424,
    FIRST_LATER_ADVICE = 20, /* MADV_COLD, Linux 5.4 */
    LAST_LATER_ADVICE = 99,  /* from 100 on stand those about broken memory, which are older */
    LATER_MOVE = 4,          /* MREMAP_DONTUNMAP, Linux 5.7 */
};

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define FAIL(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define SKIP_IF(test, value, count) BPF_JUMP(BPF_JMP | (test) | BPF_K, value, count, 0)
#define SKIP_UNLESS(test, value, count) BPF_JUMP(BPF_JMP | (test) | BPF_K, value, 0, count)

/* Flags and advice are in the low half of an argument; both processors put it first. */
static struct sock_filter rules[] = {
    LOAD(nr),
    SKIP_UNLESS(BPF_JGE, FIRST_LATER_CALL, 1),
    FAIL(ENOSYS),
    SKIP_UNLESS(BPF_JEQ, SYS_madvise, 5),
    LOAD(args[2]),
    SKIP_UNLESS(BPF_JGE, FIRST_LATER_ADVICE, 2),
    SKIP_IF(BPF_JGT, LAST_LATER_ADVICE, 1),
    FAIL(EINVAL),
    ALLOW,
    SKIP_UNLESS(BPF_JEQ, SYS_mremap, 3),
    LOAD(args[3]),
    SKIP_UNLESS(BPF_JSET, LATER_MOVE, 1),
    FAIL(EINVAL),
    ALLOW,
};

int main(int count, char **words)
{
    struct sock_fprog program = {.len = sizeof rules / sizeof *rules, .filter = rules};
    if (count < 2) return 2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("no filter can be installed");
        return 77;
    }
    execvp(words[1], words + 1);
    perror(words[1]);
    return 127;
}
