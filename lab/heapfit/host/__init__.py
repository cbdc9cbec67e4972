"""What the machine, its files and its processes are, as the kernel and the files say.

elf           what an ELF file says of itself
program       whether a command can be started, and a preload reaches its malloc
interpreters  runtimes that keep their objects in memory of their own
machine       the machine that a study runs on
cgroups       limits of control groups
proc          processes, and what /proc says of each
maps          a process's mappings
allocator     which allocator a process has
contents      what is in a process's memory: free blocks of glibc's malloc, zeros
"""
