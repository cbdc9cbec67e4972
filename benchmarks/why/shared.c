/* Memory that processes share: `shared memfd|shm|sysv|anonymous` */
#include "ready.h"
#include <fcntl.h>
#include <sys/shm.h>

int main(int count, char **arguments)
{
    const char *kind = count > 1 ? arguments[1] : "";
    void *memory = NULL;
    if (strcmp(kind, "sysv") == 0) {
        int segment = shmget(IPC_PRIVATE, MUCH, IPC_CREAT | 0600);
        memory = shmat(segment, NULL, 0);
        shmctl(segment, IPC_RMID, NULL);
    } else {
        int file = -1;
        if (strcmp(kind, "memfd") == 0) file = memfd_create("[heap]", 0);
        if (strcmp(kind, "shm") == 0) file = shm_open("/heapfit-why", O_RDWR | O_CREAT, 0600);
        if (file >= 0 && ftruncate(file, (off_t)MUCH) != 0) return 1;
        if (strcmp(kind, "shm") == 0) shm_unlink("/heapfit-why");
        memory = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
    }
    memset(memory, 'x', MUCH);
    ready();
}
