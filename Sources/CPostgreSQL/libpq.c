#include "CPostgreSQL.h"
#include <dlfcn.h>
#include <pthread.h>

#define FORWARD(result, name, parameters, arguments) \
    static __typeof__(name) *loaded_##name; \
    result name parameters { return loaded_##name arguments; }
LIBPQ_FUNCTIONS(FORWARD)

static const char *missing;

static void load(void) {
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        missing = "libpq.so.5 is not installed (Debian: libpq5)";
        return;
    }
#define FIND(result, name, parameters, arguments) \
    if (!(loaded_##name = (__typeof__(name) *)dlsym(library, #name))) { missing = "libpq.so.5 has no " #name ": it is too old"; }
    LIBPQ_FUNCTIONS(FIND)
}

const char *libpq_load(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return missing;
}
