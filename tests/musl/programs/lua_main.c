/* Runs the Lua script that is named. The crate has the interpreter's library alone, without its command. */
#include <lauxlib.h>
#include <lualib.h>

#include <stdio.h>

int main(int count, char **words)
{
    lua_State *state = luaL_newstate();
    if (count != 2 || state == NULL) return 2;
    luaL_openlibs(state);
    int failed = luaL_dofile(state, words[1]);
    if (failed) fprintf(stderr, "%s\n", lua_tostring(state, -1));
    lua_close(state);
    return failed;
}
