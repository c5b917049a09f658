// Time and random numbers: the executable's definitions precede those of the C library for every library in the process.
#define _GNU_SOURCE
#include "CSimulation.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef long (*system_call)(long, long, long, long, long, long, long);

static long original_syscall(long number, long a, long b, long c, long d, long e, long f) {
    static system_call original;
    if (!original) original = (system_call)simulation_original("syscall");
    return original(number, a, b, c, d, e, f);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    bool is_cpu = clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID;
    if (!simulation_runs() || is_cpu) return (int)original_syscall(SYS_clock_gettime, clock, (long)time, 0, 0, 0, 0);
    bool is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    int64_t nanoseconds = is_wall ? simulation_wall() : simulation_now();
    *time = (struct timespec){ nanoseconds / 1000000000, nanoseconds % 1000000000 };
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    *time = (struct timeval){ precise.tv_sec, precise.tv_nsec / 1000 };
    return 0;
}

time_t time(time_t *result) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (result) *result = precise.tv_sec;
    return precise.tv_sec;
}

int64_t simulation_cpu(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static ssize_t fill(uint8_t *bytes, size_t count) {
    for (size_t index = 0; index < count; index++) bytes[index] = (uint8_t)(simulation_random(simulation_system) >> 24);
    return (ssize_t)count;
}

ssize_t getrandom(void *bytes, size_t count, unsigned flags) {
    if (simulation_runs()) return fill(bytes, count);
    return original_syscall(SYS_getrandom, (long)bytes, (long)count, flags, 0, 0, 0);
}

int getentropy(void *bytes, size_t count) { return getrandom(bytes, count, 0) == (ssize_t)count ? 0 : -1; }

// Swift's generator calls the kernel by number.
long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long values[6];
    for (int index = 0; index < 6; index++) values[index] = va_arg(list, long);
    va_end(list);
    if (number == SYS_getrandom && simulation_runs()) return fill((void *)values[0], (size_t)values[1]);
    return original_syscall(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

int pthread_create(
    pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*run)(void *), void *restrict context) {
    if (simulation_runs()) simulation_fail("a second thread begins");
    int (*original)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = simulation_original("pthread_create");
    return original(thread, attributes, run, context);
}

void simulation_check_symbols(void) {
    struct { const char *name; void *own; } replaced[] = {
        { "clock_gettime", clock_gettime }, { "getrandom", getrandom }, { "syscall", syscall },
        { "pthread_create", pthread_create },
    };
    for (size_t index = 0; index < sizeof replaced / sizeof *replaced; index++)
        if (dlsym(RTLD_DEFAULT, replaced[index].name) != replaced[index].own)
            simulation_fail("%s is not the simulation's: link with --export-dynamic", replaced[index].name);
}
