/* A data base that is mapped and read: `file FILE` */
#include "ready.h"
#include <fcntl.h>

int main(int count, char **arguments)
{
    int file = open(count > 1 ? arguments[1] : "", O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)MUCH) != 0) return 1;
    const char *data = mmap(NULL, MUCH, PROT_READ, MAP_SHARED, file, 0);
    size_t zeros = 0;
    for (size_t i = 0; i < MUCH; i += 512) zeros += data[i] == 0;
    if (zeros == 0) return 1;
    ready();
}
