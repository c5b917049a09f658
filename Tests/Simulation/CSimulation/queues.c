// Dispatch queues, for GRDB. A block that a queue gets becomes a job of the scheduler. The job runs on the only thread,
// inside the real dispatch_sync, so that the queue is the current one for all checks.
#define _GNU_SOURCE
#include "CSimulation.h"
#include <stdlib.h>

extern void *_Block_copy(const void *block);
extern void _Block_release(const void *block);

struct item { void *block; void *context; simulation_function function; struct item *next; };
struct queue { void *object; struct item *first, **end; bool is_scheduled, is_running; struct queue *next; };
static struct queue *queues;

#define ORIGINAL(name) ({ static void *function; if (!function) function = simulation_original(name); function; })

// The end of a queue would start a thread, so no queue ends.
void *dispatch_queue_create_with_target(const char *label, void *attributes, void *target) {
    void *object = ((void *(*)(const char *, void *, void *))ORIGINAL("dispatch_queue_create_with_target"))(label, attributes, target);
    ((void (*)(void *))ORIGINAL("dispatch_retain"))(object);
    return object;
}

void *dispatch_queue_create(const char *label, void *attributes) {
    return dispatch_queue_create_with_target(label, attributes, NULL);
}

static struct queue *queue_of(void *object) {
    for (struct queue *queue = queues; queue; queue = queue->next)
        if (queue->object == object) return queue;
    struct queue *queue = calloc(1, sizeof *queue);
    *queue = (struct queue){ .object = object, .end = &queue->first, .next = queues };
    return queues = queue;
}

static void run_first(void *context) {
    struct queue *queue = context;
    // The queue's job may wait, and run the scheduler until its turn comes again.
    if (queue->is_running) { simulation_add(simulation_relay, run_first, queue); return; }
    struct item *item = queue->first;
    queue->first = item->next;
    if (!queue->first) queue->end = &queue->first;
    queue->is_running = true;
    if (item->block) ((void (*)(void *, void *))ORIGINAL("dispatch_sync"))(queue->object, item->block);
    else ((void (*)(void *, void *, simulation_function))ORIGINAL("dispatch_sync_f"))(queue->object, item->context, item->function);
    queue->is_running = false;
    if (item->block) _Block_release(item->block);
    free(item);
    if (queue->first) simulation_add(simulation_relay, run_first, queue); else queue->is_scheduled = false;
}

static void append(void *object, struct item new) {
    struct queue *queue = queue_of(object);
    struct item *item = malloc(sizeof *item);
    *item = new;
    *queue->end = item;
    queue->end = &item->next;
    if (queue->is_scheduled) return;
    queue->is_scheduled = true;
    simulation_add(simulation_relay, run_first, queue);
}

void dispatch_async(void *queue, void *block) {
    if (simulation_runs()) append(queue, (struct item){ .block = _Block_copy(block) });
    else ((void (*)(void *, void *))ORIGINAL("dispatch_async"))(queue, block);
}

void dispatch_barrier_async(void *queue, void *block) { dispatch_async(queue, block); }

void dispatch_async_f(void *queue, void *context, simulation_function function) {
    if (simulation_runs()) append(queue, (struct item){ .context = context, .function = function });
    else ((void (*)(void *, void *, simulation_function))ORIGINAL("dispatch_async_f"))(queue, context, function);
}

struct later { void *queue, *block; };

static void append_later(void *context) {
    struct later *later = context;
    append(later->queue, (struct item){ .block = later->block });
    free(later);
}

void dispatch_after(uint64_t time, void *queue, void *block) {
    if (!simulation_runs()) { ((void (*)(uint64_t, void *, void *))ORIGINAL("dispatch_after"))(time, queue, block); return; }
    struct later *later = malloc(sizeof *later);
    *later = (struct later){ queue, _Block_copy(block) };
    simulation_add_at((int64_t)time, simulation_relay, append_later, later);
}

// A thread that waits lets the others run.
static long wait_for(long (*original)(void *, uint64_t), void *object, uint64_t timeout, const char *name) {
    while (simulation_runs() && timeout == UINT64_MAX) {
        if (original(object, 0) == 0) return 0;
        if (!simulation_step(INT64_MAX)) simulation_fail("%s never ends", name);
    }
    return original(object, timeout);
}

long dispatch_semaphore_wait(void *object, uint64_t timeout) {
    return wait_for(ORIGINAL("dispatch_semaphore_wait"), object, timeout, "dispatch_semaphore_wait");
}

long dispatch_group_wait(void *object, uint64_t timeout) {
    return wait_for(ORIGINAL("dispatch_group_wait"), object, timeout, "dispatch_group_wait");
}

void simulation_forget_queues(void) { queues = NULL; }
