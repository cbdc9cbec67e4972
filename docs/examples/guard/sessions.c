#include <stdio.h>
#include <stdlib.h>

struct session {
    char user[40];
    long requests;
};

static struct session *sessions[8];

static void log_in(int place)
{
    sessions[place] = calloc(1, sizeof *sessions[place]);
}

static void log_out(int place)
{
    free(sessions[place]); /* but it stays in the table */
}

static long requests_of(int place)
{
    return sessions[place]->requests;
}

int main(void)
{
    long total = 0;
    for (long i = 0; i < 10000000; i++) {
        int place = (int)(i % 8);
        log_in(place);
        sessions[place]->requests++;
        log_out(place);
        total += requests_of(place);
    }
    printf("%ld requests\n", total);
    return 0;
}
