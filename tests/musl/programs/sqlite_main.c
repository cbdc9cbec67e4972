/* Runs the script that is named in a database in memory. The crate has SQLite's library alone, without its shell: of what that
 * knows beside SQL, there is readfile(), and lines that begin with a point are passed over. */
#include <sqlite3.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *contents(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) return NULL;
    *size = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*size + 1);
    if (text == NULL || fread(text, 1, *size, file) != *size) return NULL;
    text[*size] = '\0';
    fclose(file);
    return text;
}

static void read_file(sqlite3_context *context, int count, sqlite3_value **arguments)
{
    size_t size;
    char *text = contents((const char *)sqlite3_value_text(arguments[count - 1]), &size);
    if (text == NULL) sqlite3_result_null(context);
    else sqlite3_result_text(context, text, (int)size, free);
}

static int print_row(void *unused, int count, char **values, char **names)
{
    (void)unused, (void)names;
    for (int i = 0; i < count; i++) printf("%s%s", i == 0 ? "" : "|", values[i] == NULL ? "" : values[i]);
    putchar('\n');
    return 0;
}

static void blank_dot_commands(char *script)
{
    for (char *line = script; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (*line == '.') memset(line, ' ', strcspn(line, "\n"));
    }
}

int main(int count, char **words)
{
    sqlite3 *database;
    size_t size;
    char *script = count == 2 ? contents(words[1], &size) : NULL;
    if (script == NULL || sqlite3_open(":memory:", &database) != SQLITE_OK) return 2;
    sqlite3_create_function(database, "readfile", 1, SQLITE_UTF8, NULL, read_file, NULL, NULL);
    blank_dot_commands(script);
    int result = sqlite3_exec(database, script, print_row, NULL, NULL);
    if (result != SQLITE_OK) fprintf(stderr, "%s\n", sqlite3_errmsg(database));
    sqlite3_close(database);
    free(script);
    return result != SQLITE_OK;
}
