// Each seed runs in its own process, which begins as a copy of one that has done nothing yet.
#define _GNU_SOURCE
#include "CSimulation.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void start_again(char *const arguments[], unsigned long kind) {
    // Containers may forbid this. Nothing known depends on addresses.
    personality(kind);
    execv("/proc/self/exe", arguments);
    simulation_fail("cannot start again");
}

void simulation_fix_surroundings(char *const arguments[]) {
    if (getenv("SWIFT_DETERMINISTIC_HASHING")) return;
    setenv("SWIFT_DETERMINISTIC_HASHING", "1", true);
    // Hides RDRAND from BoringSSL, which otherwise mixes true random numbers into its own. A signature in a header then had
    // another length in each run, because Huffman codes differ in length.
    setenv("OPENSSL_ia32cap", "~0x4000000000000000", true);
    start_again(arguments, (unsigned long)personality(0xFFFFFFFF) | ADDR_NO_RANDOMIZE);
}

void simulation_move(char *const arguments[]) {
    start_again(arguments, (unsigned long)personality(0xFFFFFFFF) & ~(unsigned long)ADDR_NO_RANDOMIZE);
}

void simulation_scatter(void) {
    unsigned short state[] = { (unsigned short)getpid(), 0, 0 };
    void *blocks[200];
    for (size_t index = 0; index < 200; index++) blocks[index] = malloc(16 + (size_t)nrand48(state) % 5000);
    // The next allocations fill gaps in another order than usual.
    for (size_t index = 0; index < 200; index++) if (nrand48(state) % 2) free(blocks[index]);
}

int simulation_shared_file(size_t size) {
    int file = memfd_create("results", 0);
    if (file < 0 || ftruncate(file, (off_t)size)) simulation_fail("no shared memory");
    return file;
}

void *simulation_shared_memory(int file, size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) simulation_fail("no shared memory");
    return memory;
}

int simulation_fork(unsigned cpu_seconds) {
    fflush(NULL);
    int child = fork();
    if (child < 0) simulation_fail("no process");
    if (child == 0) {
        signal(SIGINT, SIG_DFL);
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
