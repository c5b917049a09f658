// Records every change of the files below a folder, and every sync, in the order in which they took effect.
//
//     LD_PRELOAD=record.so POWERLOSS_FOLDER=/data POWERLOSS_RECORD=/tmp/record command …
//
// Several processes may share one record: a lock is held while a call takes effect and is recorded. A sync has two events,
// because it covers only what was written before it began. Calls that this file cannot record are events of kind 'e'. Calls
// that it does not know show in the end: the record then differs from the files.
//
// POWERLOSS_LEAVE_OUT=files, folders or all: these syncs succeed, do nothing and are not recorded.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// `disk.py` reads the same fields.
struct event {
    char kind;
    char padding[7];
    uint64_t time, inode, number;
    uint32_t first, second;
    uint64_t bytes;
} __attribute__((packed));

static char folder[PATH_MAX];
static int record = -1, leaves_out_files, leaves_out_folders;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *below = getenv("POWERLOSS_FOLDER"), *file = getenv("POWERLOSS_RECORD"), *left = getenv("POWERLOSS_LEAVE_OUT");
    if (!below || !file || !realpath(below, folder)) return;
    leaves_out_files = left && (!strcmp(left, "files") || !strcmp(left, "all"));
    leaves_out_folders = left && (!strcmp(left, "folders") || !strcmp(left, "all"));
    record = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (record < 0) abort();
}

static void lock(void) {
    pthread_mutex_lock(&mutex);
    while (flock(record, LOCK_EX) && errno == EINTR) {}
}

static void unlock(void) {
    int error = errno;
    flock(record, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    errno = error;
}

// Appends an event. The caller has the lock.
static void note(
    char kind, uint64_t inode, uint64_t number, const char *first, const char *second, const void *bytes, size_t count
) {
    struct timespec now;
    int error = errno;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct event event = {
        .kind = kind, .time = now.tv_sec * 1000000000ull + now.tv_nsec, .inode = inode, .number = number,
        .first = first ? strlen(first) : 0, .second = second ? strlen(second) : 0, .bytes = count,
    };
    struct iovec parts[] = {
        {&event, sizeof event}, {(void *)first, event.first}, {(void *)second, event.second}, {(void *)bytes, count},
    };
    REAL(writev);
    if (real(record, parts, 4) != (ssize_t)(sizeof event + event.first + event.second + count)) abort();
    errno = error;
}

static int is_below(const char *path) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

// The path of a descriptor, if it is a file or a folder below the recorded folder.
static int is_recorded(int descriptor, struct stat *status, char *path) {
    int error = errno, found = 0;
    if (record >= 0 && !fstat(descriptor, status) && (S_ISREG(status->st_mode) || S_ISDIR(status->st_mode))) {
        char link[32];
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t length = readlink(link, path, PATH_MAX - 1);
        if (length > 0) {
            path[length] = 0;
            found = is_below(path);
        }
    }
    errno = error;
    return found;
}

// The absolute path of a name, whose last part may be missing. It is not followed if it is a symbolic link.
static int is_name_recorded(int at, const char *name, char *path) {
    char parent[PATH_MAX], start[PATH_MAX] = "", link[32];
    int error = errno;
    if (record < 0) return 0;
    if (name[0] != '/' && at != AT_FDCWD) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t length = readlink(link, start, PATH_MAX - 2);
        if (length < 0) return 0;
        strcpy(start + length, "/");
    }
    if (snprintf(parent, sizeof parent, "%s%s", start, name) >= PATH_MAX) return 0;
    size_t length = strlen(parent);
    while (length > 1 && parent[length - 1] == '/') parent[--length] = 0;
    char *slash = strrchr(parent, '/'), *last = slash ? slash + 1 : parent, base[NAME_MAX + 1];
    snprintf(base, sizeof base, "%s", last);
    if (slash == parent) slash[1] = 0;
    else if (slash) *slash = 0;
    else strcpy(parent, ".");
    int found = realpath(parent, path) != NULL;
    if (found) {
        strncat(path, "/", PATH_MAX - strlen(path) - 1);
        strncat(path, base, PATH_MAX - strlen(path) - 1);
        found = is_below(path);
    }
    errno = error;
    return found;
}

// ----- Files come into being

static void note_escape(int descriptor, const char *call) {
    struct stat status;
    char path[PATH_MAX];
    if (!is_recorded(descriptor, &status, path)) return;
    lock();
    note('e', status.st_ino, 0, path, call, NULL, 0);
    unlock();
}

static int open_recorded(int at, const char *name, int flags, mode_t mode) {
    REAL(openat64);
    char path[PATH_MAX];
    struct stat before, after;
    if (!(flags & (O_CREAT | O_TRUNC)) || !is_name_recorded(at, name, path)) {
        int descriptor = real(at, name, flags, mode);
        if (descriptor >= 0 && (flags & O_TMPFILE) == O_TMPFILE) note_escape(descriptor, "O_TMPFILE");
        return descriptor;
    }
    lock();
    int existed = !fstatat(at, name, &before, 0);
    int descriptor = real(at, name, flags, mode);
    if (descriptor >= 0 && is_recorded(descriptor, &after, path) && S_ISREG(after.st_mode)) {
        if (!existed) note('c', after.st_ino, 0, path, NULL, NULL, 0);
        else if (flags & O_TRUNC && before.st_size) note('t', after.st_ino, 0, path, NULL, NULL, 0);
    }
    unlock();
    return descriptor;
}

#define OPEN(name, parameters, at) \
    int name parameters { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | __O_TMPFILE)) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
        return open_recorded(at, file, flags, mode); \
    }
OPEN(open, (const char *file, int flags, ...), AT_FDCWD)
OPEN(open64, (const char *file, int flags, ...), AT_FDCWD)
OPEN(openat, (int at, const char *file, int flags, ...), at)
OPEN(openat64, (int at, const char *file, int flags, ...), at)
int __open_2(const char *file, int flags) { return open_recorded(AT_FDCWD, file, flags, 0); }
int __open64_2(const char *file, int flags) { return open_recorded(AT_FDCWD, file, flags, 0); }
int creat(const char *file, mode_t mode) { return open_recorded(AT_FDCWD, file, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *file, mode_t mode) { return creat(file, mode); }

#define TEMPORARY(name, parameters, arguments) \
    int name parameters { \
        REAL(name); \
        struct stat status; \
        char path[PATH_MAX]; \
        if (record < 0) return real arguments; \
        lock(); \
        int descriptor = real arguments; \
        if (descriptor >= 0 && is_recorded(descriptor, &status, path)) note('c', status.st_ino, 0, path, NULL, NULL, 0); \
        unlock(); \
        return descriptor; \
    }
TEMPORARY(mkstemp, (char *template), (template))
TEMPORARY(mkstemp64, (char *template), (template))
TEMPORARY(mkostemp, (char *template, int flags), (template, flags))
TEMPORARY(mkostemp64, (char *template, int flags), (template, flags))

#define STREAM(name) \
    FILE *name(const char *file, const char *mode) { \
        REAL(name); \
        FILE *stream = real(file, mode); \
        if (stream && strpbrk(mode, "wa+")) note_escape(fileno(stream), #name); \
        return stream; \
    }
STREAM(fopen)
STREAM(fopen64)

// ----- Content

// Performs a call that writes `parts` at `offset`, or at the descriptor's position if that is negative.
static ssize_t write_recorded(int descriptor, const struct iovec *parts, int count, off_t offset) {
    REAL(writev);
    static __typeof__(pwritev64) *real_at;
    if (!real_at) real_at = (__typeof__(pwritev64) *)dlsym(RTLD_NEXT, "pwritev64");
    struct stat status;
    char path[PATH_MAX];
    if (!is_recorded(descriptor, &status, path))
        return offset < 0 ? real(descriptor, parts, count) : real_at(descriptor, parts, count, offset);
    lock();
    off_t start = offset;
    if (offset < 0 && fcntl(descriptor, F_GETFL) & O_APPEND) start = fstat(descriptor, &status) ? 0 : status.st_size;
    else if (offset < 0) start = lseek(descriptor, 0, SEEK_CUR);
    ssize_t written = offset < 0 ? real(descriptor, parts, count) : real_at(descriptor, parts, count, offset);
    for (ssize_t done = 0, part; done < written; done += part, parts++) {
        part = parts->iov_len;
        if (part > written - done) part = written - done;
        if (part) note('w', status.st_ino, start + done, path, NULL, parts->iov_base, part);
    }
    unlock();
    return written;
}

#define ONE(bytes, count) &(struct iovec){(void *)(bytes), count}, 1
ssize_t write(int to, const void *bytes, size_t count) { return write_recorded(to, ONE(bytes, count), -1); }
ssize_t pwrite(int to, const void *bytes, size_t count, off_t at) { return write_recorded(to, ONE(bytes, count), at); }
ssize_t pwrite64(int to, const void *bytes, size_t count, off64_t at) { return write_recorded(to, ONE(bytes, count), at); }
ssize_t writev(int to, const struct iovec *parts, int count) { return write_recorded(to, parts, count, -1); }
ssize_t pwritev(int to, const struct iovec *parts, int count, off_t at) { return write_recorded(to, parts, count, at); }
ssize_t pwritev64(int to, const struct iovec *parts, int count, off64_t at) { return write_recorded(to, parts, count, at); }

int ftruncate(int descriptor, off_t size) {
    REAL(ftruncate);
    struct stat status;
    char path[PATH_MAX];
    if (!is_recorded(descriptor, &status, path)) return real(descriptor, size);
    lock();
    int result = real(descriptor, size);
    if (!result) note('t', status.st_ino, size, path, NULL, NULL, 0);
    unlock();
    return result;
}
int ftruncate64(int descriptor, off64_t size) { return ftruncate(descriptor, size); }

// ----- Calls that change content in ways that are not recorded

#define ESCAPE(result, name, parameters, arguments, descriptor, escapes) \
    result name parameters { \
        REAL(name); \
        if (escapes) note_escape(descriptor, #name); \
        return real arguments; \
    }
ESCAPE(int, fallocate, (int to, int mode, off_t at, off_t size), (to, mode, at, size), to, 1)
ESCAPE(int, fallocate64, (int to, int mode, off64_t at, off64_t size), (to, mode, at, size), to, 1)
ESCAPE(int, posix_fallocate, (int to, off_t at, off_t size), (to, at, size), to, 1)
ESCAPE(int, posix_fallocate64, (int to, off64_t at, off64_t size), (to, at, size), to, 1)
ESCAPE(ssize_t, sendfile, (int to, int from, off_t *at, size_t count), (to, from, at, count), to, 1)
ESCAPE(ssize_t, sendfile64, (int to, int from, off64_t *at, size_t count), (to, from, at, count), to, 1)
ESCAPE(ssize_t, copy_file_range, (int from, off64_t *there, int to, off64_t *at, size_t count, unsigned flags),
    (from, there, to, at, count, flags), to, 1)
ESCAPE(ssize_t, splice, (int from, off64_t *there, int to, off64_t *at, size_t count, unsigned flags),
    (from, there, to, at, count, flags), to, 1)
#define WRITES_FILE (protection & PROT_WRITE && flags & MAP_SHARED && !(flags & MAP_ANONYMOUS))
ESCAPE(void *, mmap, (void *at, size_t size, int protection, int flags, int file, off_t offset),
    (at, size, protection, flags, file, offset), file, WRITES_FILE)
ESCAPE(void *, mmap64, (void *at, size_t size, int protection, int flags, int file, off64_t offset),
    (at, size, protection, flags, file, offset), file, WRITES_FILE)

int truncate(const char *file, off_t size) {
    int descriptor = open(file, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return -1;
    int result = ftruncate(descriptor, size);
    close(descriptor);
    return result;
}
int truncate64(const char *file, off64_t size) { return truncate(file, size); }

// ----- Names

// Performs `call`, and records it if it succeeded and a name is below the folder.
#define NAMED(kind, at, from, to_at, to, call) \
    char first[PATH_MAX], second[PATH_MAX] = ""; \
    const char *other = to; \
    int is_first = is_name_recorded(at, from, first), is_second = other && is_name_recorded(to_at, other, second); \
    if (!is_first && !is_second) return call; \
    lock(); \
    int result = call; \
    if (!result) { \
        struct stat status; \
        int is_there = !fstatat(AT_FDCWD, other ? second : first, &status, AT_SYMLINK_NOFOLLOW); \
        note(is_second == (other != NULL) && is_first ? kind : 'e', is_there ? status.st_ino : 0, 0, first, second, NULL, 0); \
    } \
    unlock(); \
    return result

int renameat2(int at, const char *from, int to_at, const char *to, unsigned flags) {
    REAL(renameat2);
    NAMED(flags & RENAME_EXCHANGE ? 'e' : 'r', at, from, to_at, to, real(at, from, to_at, to, flags));
}
int renameat(int at, const char *from, int to_at, const char *to) { return renameat2(at, from, to_at, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int at, const char *from, int to_at, const char *to, int flags) {
    REAL(linkat);
    NAMED(flags ? 'e' : 'l', at, from, to_at, to, real(at, from, to_at, to, flags));
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int at, const char *name, int flags) {
    REAL(unlinkat);
    NAMED('u', at, name, 0, NULL, real(at, name, flags));
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) {
    int result = unlink(name);
    return result && errno == EISDIR ? rmdir(name) : result;
}

int mkdirat(int at, const char *name, mode_t mode) {
    REAL(mkdirat);
    NAMED('d', at, name, 0, NULL, real(at, name, mode));
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int symlinkat(const char *target, int at, const char *name) {
    REAL(symlinkat);
    NAMED('e', at, name, 0, NULL, real(target, at, name));
}
int symlink(const char *target, const char *name) { return symlinkat(target, AT_FDCWD, name); }

// ----- Syncs. `sync_file_range` and `msync` promise too little to count as one.

static int sync_recorded(int descriptor, int (*real)(int)) {
    static uint64_t last;
    struct stat status;
    char path[PATH_MAX];
    if (!is_recorded(descriptor, &status, path)) return real(descriptor);
    if (S_ISDIR(status.st_mode) ? leaves_out_folders : leaves_out_files) return 0;
    lock();
    uint64_t number = (uint64_t)getpid() << 32 | ++last;
    note('s', status.st_ino, number, path, NULL, NULL, 0);
    unlock();
    int result = real(descriptor);
    if (result) return result;
    lock();
    note('S', status.st_ino, number, path, NULL, NULL, 0);
    unlock();
    return 0;
}

int fsync(int descriptor) {
    REAL(fsync);
    return sync_recorded(descriptor, real);
}

int fdatasync(int descriptor) {
    REAL(fdatasync);
    return sync_recorded(descriptor, real);
}
