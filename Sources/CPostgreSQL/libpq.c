#include "CPostgreSQL.h"
#if __has_include(<postgresql/libpq-fe.h>)
#include <dlfcn.h>
#include <pthread.h>

// The functions that the store calls, each with its result, name, parameters and arguments.
#define FUNCTIONS(F) \
    F(PGconn *, PQconnectdbParams, (const char *const *n, const char *const *v, int e), (n, v, e)) \
    F(PQconninfoOption *, PQconninfoParse, (const char *s, char **e), (s, e)) \
    F(void, PQconninfoFree, (PQconninfoOption *o), (o)) \
    F(void, PQfinish, (PGconn *c), (c)) \
    F(ConnStatusType, PQstatus, (const PGconn *c), (c)) \
    F(int, PQserverVersion, (const PGconn *c), (c)) \
    F(int, PQbackendPID, (const PGconn *c), (c)) \
    F(char *, PQerrorMessage, (const PGconn *c), (c)) \
    F(int, PQsocket, (const PGconn *c), (c)) \
    F(PQnoticeProcessor, PQsetNoticeProcessor, (PGconn *c, PQnoticeProcessor p, void *a), (c, p, a)) \
    F(PGVerbosity, PQsetErrorVerbosity, (PGconn *c, PGVerbosity v), (c, v)) \
    F(int, PQsetnonblocking, (PGconn *c, int a), (c, a)) \
    F(int, PQflush, (PGconn *c), (c)) \
    F(int, PQenterPipelineMode, (PGconn *c), (c)) \
    F(int, PQexitPipelineMode, (PGconn *c), (c)) \
    F(int, PQpipelineSync, (PGconn *c), (c)) \
    F(PGresult *, PQexec, (PGconn *c, const char *q), (c, q)) \
    F(int, PQsendQueryParams, (PGconn *c, const char *q, int n, const Oid *t, const char *const *v, const int *l, \
        const int *f, int r), (c, q, n, t, v, l, f, r)) \
    F(int, PQputCopyData, (PGconn *c, const char *b, int n), (c, b, n)) \
    F(int, PQputCopyEnd, (PGconn *c, const char *e), (c, e)) \
    F(int, PQgetCopyData, (PGconn *c, char **b, int a), (c, b, a)) \
    F(PGresult *, PQgetResult, (PGconn *c), (c)) \
    F(int, PQisBusy, (PGconn *c), (c)) \
    F(int, PQconsumeInput, (PGconn *c), (c)) \
    F(PGnotify *, PQnotifies, (PGconn *c), (c)) \
    F(void, PQfreemem, (void *p), (p)) \
    F(ExecStatusType, PQresultStatus, (const PGresult *r), (r)) \
    F(char *, PQresultErrorMessage, (const PGresult *r), (r)) \
    F(char *, PQresultErrorField, (const PGresult *r, int f), (r, f)) \
    F(int, PQntuples, (const PGresult *r), (r)) \
    F(int, PQnfields, (const PGresult *r), (r)) \
    F(char *, PQcmdStatus, (PGresult *r), (r)) \
    F(char *, PQcmdTuples, (PGresult *r), (r)) \
    F(char *, PQgetvalue, (const PGresult *r, int t, int f), (r, t, f)) \
    F(int, PQgetlength, (const PGresult *r, int t, int f), (r, t, f)) \
    F(int, PQgetisnull, (const PGresult *r, int t, int f), (r, t, f)) \
    F(void, PQclear, (PGresult *r), (r))

#define FORWARD(result, name, parameters, arguments) \
    static __typeof__(name) *loaded_##name; \
    result name parameters { return loaded_##name arguments; }
FUNCTIONS(FORWARD)

static const char *missing;

static void load(void) {
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        missing = "libpq.so.5 is not installed (Debian: libpq5)";
        return;
    }
#define FIND(result, name, parameters, arguments) \
    if (!(loaded_##name = (__typeof__(name) *)dlsym(library, #name))) { missing = "libpq.so.5 has no " #name ": it is too old"; }
    FUNCTIONS(FIND)
}

const char *libpq_load(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return missing;
}
#endif
