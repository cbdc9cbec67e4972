/* musl has two allocators then: what it hands to programs, or takes from them, comes from heapfit, and what it keeps for itself
 * from its own. Here are calls of either kind; a block that went to the wrong one would be found at once. */
#include "check.h"

#include <heapfit/heapfit.h>

#include <dirent.h>
#include <dlfcn.h>
#include <glob.h>
#include <iconv.h>
#include <locale.h>
#include <netdb.h>
#include <regex.h>
#include <search.h>

static void strings_that_are_the_programs(void)
{
    char *text = strdup("text"), *line = NULL, *memory = NULL, *folder = getcwd(NULL, 0);
    size_t size = 0;
    CHECK(hf_is_ours(text) && hf_is_ours(folder));
    free(text);
    free(folder);
    CHECK(asprintf(&text, "%0*d", 5000, 1) == 5000 && hf_is_ours(text));
    FILE *stream = open_memstream(&memory, &size);
    CHECK(stream != NULL && fprintf(stream, "%s\n%s\n", text, text) > 0 && fclose(stream) == 0);
    CHECK(hf_is_ours(memory));
    stream = fmemopen(memory, size, "r");
    size = 0;
    CHECK(getline(&line, &size, stream) == 5001 && hf_is_ours(line));
    CHECK(fclose(stream) == 0);
    free(line);
    free(memory);
    free(text);
}

static void folders_and_patterns(void)
{
    struct dirent **entries;
    glob_t found;
    regex_t pattern;
    int count = scandir("/proc/self", &entries, NULL, alphasort);
    CHECK(count > 0 && hf_is_ours(entries));
    for (int i = 0; i < count; i++) free(entries[i]);
    free(entries);
    CHECK(glob("/proc/s*", 0, NULL, &found) == 0 && found.gl_pathc > 0);
    globfree(&found);
    CHECK(regcomp(&pattern, "^(a|b(c|d)*)+[e-z]{1,20}$", REG_EXTENDED) == 0);
    CHECK(regexec(&pattern, "abcdbe", 0, NULL, 0) == 0);
    regfree(&pattern);
}

static void tables(void)
{
    struct hsearch_data table = {0};
    CHECK(hcreate_r(100, &table) != 0);
    hdestroy_r(&table);
    iconv_t conversion = iconv_open("UTF-8", "UTF-16LE");
    CHECK(conversion != (iconv_t)-1);
    iconv_close(conversion);
    struct addrinfo *addresses = NULL;
    const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    CHECK(getaddrinfo("127.0.0.1", "80", &numeric, &addresses) == 0);
    freeaddrinfo(addresses);
}

static void variables_of_the_environment(void)
{
    char name[32];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "VARIABLE_%d", i % 100);
        CHECK(setenv(name, "a value of some length", 1) == 0);
    }
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "VARIABLE_%d", i);
        CHECK(strcmp(getenv(name), "a value of some length") == 0 && unsetenv(name) == 0);
    }
}

static unsigned ended;

static void count_end(void)
{
    /* The first that was registered, so the last: all others have run, on musl's own list of blocks. */
    if (++ended == 100) _exit(0);
}

static void handlers(void)
{
    for (int i = 0; i < 100; i++) CHECK(atexit(count_end) == 0);
    for (int i = 0; i < 100; i++) CHECK(pthread_atfork(NULL, NULL, NULL) == 0);
}

static void zones_and_languages(void)
{
    struct tm local;
    time_t now = 86400;
    for (int i = 0; i < 20; i++) {
        CHECK(setenv("TZ", i % 2 == 0 ? "AAAAAAAAAAAAAA-1BBBBBBBBBBBBBBB,M3.5.0,M10.5.0" : "UTC0", 1) == 0);
        tzset();
        CHECK(localtime_r(&now, &local) != NULL);
        CHECK(setlocale(LC_ALL, i % 2 == 0 ? "xx_XX.UTF-8" : "C") != NULL);
    }
}

static void *fails_to_load(void *argument)
{
    char name[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < 10; i++) CHECK(dlopen(name, RTLD_NOW) == NULL && dlerror() != NULL);
    CHECK(dlopen(name, RTLD_NOW) == NULL); /* a message that nobody asks for goes with the thread */
    return argument;
}

static void messages_of_the_linker(void)
{
    for (int i = 0; i < 10; i++) pthread_join(thread_of(0, fails_to_load, NULL), NULL);
}

int main(void)
{
    strings_that_are_the_programs();
    folders_and_patterns();
    tables();
    variables_of_the_environment();
    handlers();
    zones_and_languages();
    messages_of_the_linker();
    exit(1); /* unless the handlers say otherwise */
}
