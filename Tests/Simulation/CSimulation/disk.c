// A file system for SQLite, above the real one. It remembers what each write since the last sync has replaced, so that a
// power cut can undo any part of it.
#include "CSimulation.h"
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The unit that a disk writes as a whole.
enum { sector = 512 };

struct write { int64_t at; int count; uint8_t *before; struct write *earlier; };
struct disk_file { char *path; struct write *unsynced; int64_t synced_size; bool is_synced; struct disk_file *next; };
struct open_file { sqlite3_file base; struct disk_file *disk; sqlite3_file *real; };

static struct disk_file *files;
static sqlite3_vfs *real_vfs, vfs;
static sqlite3_io_methods methods;
static struct simulation_faults faults = { .slowest_sync = 3000000 };
static struct simulation_disk_counts counts;
static uint64_t operations_left;
static void (*died)(void);

void simulation_disk_set(struct simulation_faults new) { faults = new; }
struct simulation_faults simulation_disk_get(void) { return faults; }
struct simulation_disk_counts simulation_disk_counted(void) { return counts; }
void simulation_disk_die(uint64_t operations, void (*function)(void)) { operations_left = operations; died = function; }

static uint64_t below(uint64_t limit) { return simulation_below(simulation_disk, limit); }

// The calls above this one never return: the rest of the simulation runs below them on the stack.
static void may_die(void) {
    if (operations_left && --operations_left == 0) { died(); abort(); }
}

static bool fails(unsigned per_mille) {
    bool result = per_mille && below(1000) < per_mille;
    counts.failures += result;
    return result;
}

static struct disk_file *disk_file(const char *path) {
    for (struct disk_file *file = files; file; file = file->next) if (!strcmp(file->path, path)) return file;
    struct disk_file *file = calloc(1, sizeof *file);
    struct stat status;
    bool exists = stat(path, &status) == 0;
    *file = (struct disk_file){
        .path = strdup(path), .synced_size = exists ? status.st_size : 0, .is_synced = exists && status.st_size, .next = files };
    return files = file;
}

static void forget_writes(struct disk_file *file) {
    for (struct write *write = file->unsynced, *earlier; write; write = earlier) {
        earlier = write->earlier;
        free(write->before);
        free(write);
    }
    file->unsynced = NULL;
}

#define REAL(file) (((struct open_file *)(file))->real)
#define CALL(name, file, ...) REAL(file)->pMethods->name(REAL(file), ##__VA_ARGS__)

static int close_file(sqlite3_file *file) {
    int result = CALL(xClose, file);
    free(REAL(file));
    return result;
}

static int read_file(sqlite3_file *file, void *bytes, int count, sqlite3_int64 at) {
    if (((struct open_file *)file)->disk && fails(faults.read_errors)) return SQLITE_IOERR_READ;
    return CALL(xRead, file, bytes, count, at);
}

static int write_file(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 at) {
    struct disk_file *disk = ((struct open_file *)file)->disk;
    if (!disk) return CALL(xWrite, file, bytes, count, at);
    counts.writes++;
    may_die();
    if (faults.full) { counts.failures++; return SQLITE_FULL; }
    if (fails(faults.write_errors)) return SQLITE_IOERR_WRITE;
    struct write *write = malloc(sizeof *write);
    *write = (struct write){ at, count, calloc(1, (size_t)count), disk->unsynced };
    disk->unsynced = write;
    CALL(xRead, file, write->before, count, at);
    return CALL(xWrite, file, bytes, count, at);
}

static int truncate_file(sqlite3_file *file, sqlite3_int64 size) {
    return fails(faults.write_errors) ? SQLITE_IOERR_TRUNCATE : CALL(xTruncate, file, size);
}

static int sync_file(sqlite3_file *file, int flags) {
    struct disk_file *disk = ((struct open_file *)file)->disk;
    if (!disk) return SQLITE_OK;
    counts.syncs++;
    may_die();
    simulation_pass(20000 + (int64_t)below((uint64_t)faults.slowest_sync));
    if (fails(faults.sync_errors)) return SQLITE_IOERR_FSYNC;
    if (faults.lies) return SQLITE_OK;
    forget_writes(disk);
    sqlite3_int64 size = 0;
    CALL(xFileSize, file, &size);
    disk->synced_size = size;
    disk->is_synced = true;
    return SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size) { return CALL(xFileSize, file, size); }
static int lock_file(sqlite3_file *file, int lock) { return CALL(xLock, file, lock); }
static int unlock_file(sqlite3_file *file, int lock) { return CALL(xUnlock, file, lock); }
static int check_lock(sqlite3_file *file, int *result) { return CALL(xCheckReservedLock, file, result); }
static int control_file(sqlite3_file *file, int code, void *value) { return CALL(xFileControl, file, code, value); }
static int sector_size(sqlite3_file *file) { return CALL(xSectorSize, file); }
static int characteristics(sqlite3_file *file) { return CALL(xDeviceCharacteristics, file); }
static int map_memory(sqlite3_file *file, int page, int size, int extend, void volatile **memory) {
    return CALL(xShmMap, file, page, size, extend, memory);
}
static int lock_memory(sqlite3_file *file, int at, int count, int flags) { return CALL(xShmLock, file, at, count, flags); }
static void order_memory(sqlite3_file *file) { CALL(xShmBarrier, file); }
static int unmap_memory(sqlite3_file *file, int deletes) { return CALL(xShmUnmap, file, deletes); }

static int open_file(sqlite3_vfs *self, sqlite3_filename name, sqlite3_file *base, int flags, int *result_flags) {
    struct open_file *file = (struct open_file *)base;
    *file = (struct open_file){ .real = calloc(1, (size_t)real_vfs->szOsFile) };
    if (name && flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) file->disk = disk_file(name);
    int result = real_vfs->xOpen(real_vfs, name, file->real, flags, result_flags);
    if (result == SQLITE_OK) file->base.pMethods = &methods; else free(file->real);
    return result;
}

// Deletions survive a power cut. SQLite syncs the folder.
static int delete_file(sqlite3_vfs *self, const char *name, int syncs) {
    struct disk_file *file = disk_file(name);
    forget_writes(file);
    file->is_synced = false;
    file->synced_size = 0;
    return real_vfs->xDelete(real_vfs, name, syncs);
}

static int random_bytes(sqlite3_vfs *self, int count, char *bytes) {
    for (int index = 0; index < count; index++) bytes[index] = (char)(simulation_random(simulation_disk) >> 24);
    return count;
}

static int sleep_for(sqlite3_vfs *self, int microseconds) {
    simulation_pass((int64_t)microseconds * 1000);
    return microseconds;
}

static int julian_milliseconds(sqlite3_vfs *self, sqlite3_int64 *time) {
    *time = 210866760000000 + simulation_wall() / 1000000;
    return SQLITE_OK;
}

void simulation_disk_install(void) {
    sqlite3_initialize();
    real_vfs = sqlite3_vfs_find(NULL);
    methods = (sqlite3_io_methods){
        .iVersion = 2, .xClose = close_file, .xRead = read_file, .xWrite = write_file, .xTruncate = truncate_file,
        .xSync = sync_file, .xFileSize = file_size, .xLock = lock_file, .xUnlock = unlock_file,
        .xCheckReservedLock = check_lock, .xFileControl = control_file, .xSectorSize = sector_size,
        .xDeviceCharacteristics = characteristics, .xShmMap = map_memory, .xShmLock = lock_memory,
        .xShmBarrier = order_memory, .xShmUnmap = unmap_memory,
    };
    vfs = *real_vfs;
    vfs.zName = "simulation";
    vfs.szOsFile = sizeof(struct open_file);
    vfs.xOpen = open_file;
    vfs.xDelete = delete_file;
    vfs.xRandomness = random_bytes;
    vfs.xSleep = sleep_for;
    vfs.xCurrentTimeInt64 = julian_milliseconds;
    if (sqlite3_vfs_register(&vfs, true) != SQLITE_OK) simulation_fail("SQLite does not take the file system");
}

// Undoes, from the newest to the oldest write, each sector that was not synced with the same chance.
static int64_t cut(struct disk_file *file, uint8_t *content, int64_t size) {
    uint64_t lost = below(3) ? below(101) : 100;
    for (struct write *write = file->unsynced; write; write = write->earlier)
        for (int at = 0; at < write->count; at += sector) {
            if (below(100) >= lost) continue;
            int count = write->count - at < sector ? write->count - at : sector;
            if (write->at + at + count <= size) memcpy(content + write->at + at, write->before + at, (size_t)count);
            counts.lost_sectors++;
        }
    return file->unsynced && below(2) && file->synced_size < size ? file->synced_size : size;
}

static void survive(const char *from, const char *to, bool power_cut) {
    int in = open(from, O_RDONLY);
    if (in < 0) return;
    struct disk_file *file = disk_file(from);
    // A new file's entry in its folder is synced together with the file.
    bool is_lost = power_cut && !file->is_synced && below(2);
    struct stat status;
    fstat(in, &status);
    uint8_t *content = malloc((size_t)status.st_size + 1);
    if (read(in, content, (size_t)status.st_size) != status.st_size) simulation_fail("cannot read %s", from);
    int64_t size = power_cut ? cut(file, content, status.st_size) : status.st_size;
    close(in);
    if (!is_lost) {
        int out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (write(out, content, (size_t)size) != size) simulation_fail("cannot write %s", to);
        close(out);
    }
    free(content);
}

void simulation_disk_survive(const char *from, const char *to, bool power_cut) {
    const char *suffixes[] = { "", "-wal", "-journal" };
    for (int index = 0; index < 3; index++) {
        char source[512], copy[512];
        snprintf(source, sizeof source, "%s%s", from, suffixes[index]);
        snprintf(copy, sizeof copy, "%s%s", to, suffixes[index]);
        survive(source, copy, power_cut);
    }
}
