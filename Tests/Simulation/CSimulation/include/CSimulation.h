// The ground under a simulated relay: one thread, a seed, a virtual clock, and a disk that can lose what was not synced.
//
// Nothing here is thread-safe, because there is one thread. A second one ends the process with a message.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- scheduler.c: the order of everything

typedef void (*simulation_function)(void *context);

// The owner of a job. A crash of the relay removes the relay's jobs. Peers, clients and the disk go on.
enum simulation_owner { simulation_world, simulation_relay };

// Independent sources of random numbers, so that one part draws the same numbers whatever the others do.
enum simulation_stream {
    simulation_order, simulation_disk, simulation_system, simulation_peers, simulation_plan, simulation_streams
};

// The order in which ready jobs run: any, or mostly the oldest or the newest first.
enum simulation_bias { simulation_any, simulation_oldest, simulation_newest };

// Begins the simulation on this thread. From now on clocks, random numbers and queues are virtual.
void simulation_begin(uint64_t seed);
bool simulation_runs(void);
uint64_t simulation_random(enum simulation_stream stream);
// A random number below `limit`, which must not be 0.
uint64_t simulation_below(enum simulation_stream stream, uint64_t limit);

void simulation_add(enum simulation_owner owner, simulation_function run, void *context);
void simulation_add_at(int64_t time, enum simulation_owner owner, simulation_function run, void *context);
// How often in 1,000 jobs time passes although others are ready, and for how long at most.
void simulation_set_order(enum simulation_bias bias, uint64_t pauses, int64_t pause);
// Runs one job, or lets time pass to the next. Returns false if no job is left until `limit`.
bool simulation_step(int64_t limit);
// Removes all jobs of the relay.
void simulation_crash(void);

// Nanoseconds since some time before the beginning.
int64_t simulation_now(void);
// Lets time pass, in a call that blocks its thread.
void simulation_pass(int64_t nanoseconds);
// Sets the wall clock forward or back.
void simulation_step_wall(int64_t nanoseconds);
// The wall clock, in nanoseconds since 1970.
int64_t simulation_wall(void);
// CPU time of this process.
int64_t simulation_cpu(void);

// A number that differs as soon as two runs differ in one step.
uint64_t simulation_trace(void);
void simulation_note(uint64_t number);
uint64_t simulation_steps(void);

// ---- clocks.c, queues.c

// Returns the next definition of a function that the simulation replaces. Ends the process if there is none.
void *simulation_original(const char *name);
// Ends the process with a message.
void simulation_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
// Ends the process unless this is the simulation's thread.
void simulation_check_thread(const char *place);
void simulation_check_symbols(void);
void simulation_forget_queues(void);

// ---- children.c

// Starts the executable again, so that its addresses, the order of Swift's dictionaries and the random numbers of BoringSSL are the
// same in each run.
void simulation_fix_surroundings(char *const arguments[]);
// Starts the executable again with other addresses. To show that a run does not depend on them.
void simulation_move(char *const arguments[]);
// Lets later allocations have other places relative to each other.
void simulation_scatter(void);
// A file in memory that a child shares with its parent, also if it starts the executable again.
int simulation_shared_file(size_t size);
void *simulation_shared_memory(int file, size_t size);
// Returns 0 in the child, which a signal ends after `cpu_seconds`.
int simulation_fork(unsigned cpu_seconds);
// Waits for the end of any child, and returns its id.
int simulation_wait(int *status);
void simulation_exit(int status) __attribute__((noreturn));

// ---- disk.c: the files of SQLite

struct simulation_faults {
    bool full;
    // How many in 1,000 writes, syncs and reads fail with EIO.
    unsigned write_errors, sync_errors, read_errors;
    // The longest time of one sync.
    int64_t slowest_sync;
    // Whether a sync does nothing.
    bool lies;
};
struct simulation_disk_counts { uint64_t writes, syncs, failures, lost_sectors; };

void simulation_disk_install(void);
void simulation_disk_set(struct simulation_faults faults);
struct simulation_faults simulation_disk_get(void);
struct simulation_disk_counts simulation_disk_counted(void);
// Calls `died` instead of the write or sync after `operations` others. `died` must not return. 0: never.
void simulation_disk_die(uint64_t operations, void (*died)(void));
// Copies a database as it is on disk after its process died (`power_cut` false) or after a power cut.
void simulation_disk_survive(const char *from, const char *to, bool power_cut);
