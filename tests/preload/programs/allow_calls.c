/* Runs a program that is killed for each system call that is not named: allow_calls NUMBER... -- PROGRAM ARGUMENT... */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { CALLS_MAX = 500 };

int main(int count, char **words)
{
    static struct sock_filter rules[2 * CALLS_MAX + 2];
    unsigned short length = 0;
    int at = 1;
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (; at < count && at < CALLS_MAX && strcmp(words[at], "--") != 0; at++) {
        unsigned call = (unsigned)atoi(words[at]);
        rules[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
        rules[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    if (at + 1 >= count) return 2;
    struct sock_fprog program = {.len = length, .filter = rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("no filter can be installed");
        return 77;
    }
    execvp(words[at + 1], words + at + 1);
    perror(words[at + 1]);
    return 127;
}
