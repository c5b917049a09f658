// Each seed runs in its own process, which begins as a copy of one that has done nothing yet.
#define _GNU_SOURCE
#include "CSimulation.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void simulation_fix_addresses(char *const arguments[]) {
    if (getenv("SWIFT_DETERMINISTIC_HASHING")) return;
    setenv("SWIFT_DETERMINISTIC_HASHING", "1", true);
    // Containers may forbid this. Nothing known depends on addresses.
    personality((unsigned long)personality(0xFFFFFFFF) | ADDR_NO_RANDOMIZE);
    execv("/proc/self/exe", arguments);
    simulation_fail("cannot start again with fixed addresses");
}

void *simulation_shared_memory(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) simulation_fail("no shared memory");
    return memory;
}

int simulation_fork(unsigned cpu_seconds) {
    fflush(NULL);
    int child = fork();
    if (child < 0) simulation_fail("no process");
    if (child == 0) {
        setrlimit(RLIMIT_CPU, &(struct rlimit){ cpu_seconds, cpu_seconds + 1 });
        // For a run that blocks without using the CPU. A busy machine gives it a small part of its time.
        alarm(15 * cpu_seconds);
    }
    return child;
}

int simulation_wait(int *status) { return wait(status); }

void simulation_exit(int status) {
    fflush(NULL);
    _exit(status);
}
