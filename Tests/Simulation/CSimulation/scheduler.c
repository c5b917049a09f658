#include "CSimulation.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct job { simulation_function run; void *context; enum simulation_owner owner; };
struct timer { int64_t time; uint64_t number; struct job job; };

static struct job *ready;
static size_t ready_count, ready_capacity;
// A heap: the earliest timer is first.
static struct timer *timers;
static size_t timer_count, timer_capacity;
static uint64_t timer_number;

static bool runs;
static pthread_t thread;
static uint64_t streams[simulation_streams];
static int64_t now = 1000000000, wall = 1764288000000000000;
static enum simulation_bias bias;
static uint64_t pauses = 15;
static int64_t longest_pause = 5000000;
static uint64_t trace = 0xCBF29CE484222325, steps;

void simulation_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("simulation: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    abort();
}

void *simulation_original(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (!function) simulation_fail("no %s: the libraries have changed", name);
    return function;
}

void simulation_check_thread(const char *place) {
    if (runs && !pthread_equal(thread, pthread_self())) simulation_fail("%s on a second thread", place);
}

// SplitMix64.
static uint64_t mix(uint64_t *state) {
    uint64_t bits = *state += 0x9E3779B97F4A7C15;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB;
    return bits ^ bits >> 31;
}

void simulation_begin(uint64_t seed) {
    for (size_t stream = 0; stream < simulation_streams; stream++) {
        uint64_t state = seed * simulation_streams + stream;
        streams[stream] = mix(&state);
    }
    thread = pthread_self();
    simulation_check_symbols();
    runs = true;
}

bool simulation_runs(void) { return runs; }
uint64_t simulation_random(enum simulation_stream stream) { return mix(&streams[stream]); }
uint64_t simulation_below(enum simulation_stream stream, uint64_t limit) { return simulation_random(stream) % limit; }

int64_t simulation_now(void) { return now; }
void simulation_pass(int64_t nanoseconds) { now += nanoseconds; }
void simulation_step_wall(int64_t nanoseconds) { wall += nanoseconds; }
int64_t simulation_wall(void) { return now + wall; }
uint64_t simulation_trace(void) { return trace; }
uint64_t simulation_steps(void) { return steps; }
void simulation_note(uint64_t number) { trace = (trace ^ number) * 0x100000001B3; }

void simulation_set_order(enum simulation_bias new_bias, uint64_t new_pauses, int64_t pause) {
    bias = new_bias;
    pauses = new_pauses;
    longest_pause = pause;
}

static void *room_for_one(void *list, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return list;
    *capacity = *capacity ? *capacity * 2 : 64;
    return realloc(list, *capacity * size);
}

static void make_ready(struct job job) {
    ready = room_for_one(ready, ready_count, &ready_capacity, sizeof *ready);
    ready[ready_count++] = job;
}

void simulation_add(enum simulation_owner owner, simulation_function run, void *context) {
    simulation_check_thread("a job");
    make_ready((struct job){ run, context, owner });
}

static bool earlier(struct timer left, struct timer right) {
    return left.time != right.time ? left.time < right.time : left.number < right.number;
}

static void insert_timer(struct timer timer) {
    timers = room_for_one(timers, timer_count, &timer_capacity, sizeof *timers);
    size_t at = timer_count++;
    for (; at > 0 && earlier(timer, timers[(at - 1) / 2]); at = (at - 1) / 2) timers[at] = timers[(at - 1) / 2];
    timers[at] = timer;
}

static struct timer remove_first_timer(void) {
    struct timer first = timers[0], last = timers[--timer_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < timer_count; at = child) {
        if (child + 1 < timer_count && earlier(timers[child + 1], timers[child])) child++;
        if (!earlier(timers[child], last)) break;
        timers[at] = timers[child];
    }
    timers[at] = last;
    return first;
}

void simulation_add_at(int64_t time, enum simulation_owner owner, simulation_function run, void *context) {
    simulation_check_thread("a timer");
    insert_timer((struct timer){ time, timer_number++, { run, context, owner } });
}

static void take_due(void) {
    while (timer_count && timers[0].time <= now) make_ready(remove_first_timer().job);
}

static size_t choose(void) {
    // One in four jobs is any, so that each order stays possible.
    if (bias == simulation_oldest && simulation_below(simulation_order, 4)) return 0;
    if (bias == simulation_newest && simulation_below(simulation_order, 4)) return ready_count - 1;
    return simulation_below(simulation_order, ready_count);
}

bool simulation_step(int64_t limit) {
    if (!ready_count) {
        if (!timer_count || timers[0].time > limit) return false;
        if (timers[0].time > now) now = timers[0].time;
    } else if (simulation_below(simulation_order, 1000) < pauses) {
        // Other processes also use the cores.
        now += (int64_t)simulation_below(simulation_order, (uint64_t)longest_pause);
    }
    take_due();
    size_t index = choose();
    simulation_note((uint64_t)now);
    simulation_note(index << 32 | ready_count);
    struct job job = ready[index];
    // Keeps the order, for the biases.
    for (ready_count--; index < ready_count; index++) ready[index] = ready[index + 1];
    steps++;
    job.run(job.context);
    return true;
}

void simulation_crash(void) {
    size_t kept = 0;
    for (size_t index = 0; index < ready_count; index++)
        if (ready[index].owner == simulation_world) ready[kept++] = ready[index];
    ready_count = kept;
    size_t count = timer_count;
    timer_count = 0;
    // Inserting never reaches a timer that was not looked at, because the heap grows slower than the loop.
    for (size_t index = 0; index < count; index++) {
        struct timer timer = timers[index];
        if (timer.job.owner == simulation_world) insert_timer(timer);
    }
    simulation_forget_queues();
}
