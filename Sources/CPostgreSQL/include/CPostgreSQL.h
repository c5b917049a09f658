#pragma once
// libpq, loaded on demand. It depends on about twenty libraries, which a relay over SQLite should not load.
//
// The declarations replace libpq-fe.h, so that a build needs no package of PostgreSQL. They come from the chapter
// "libpq — C Library" of PostgreSQL's documentation. The numbers come from libpq-fe.h, which promises to keep them.

typedef unsigned int Oid;
typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;

/// The status of a connection. A connection that was lost or not made has another value.
typedef enum { CONNECTION_OK = 0 } ConnStatusType;

/// The status of a result. The values of errors are left out.
typedef enum {
    PGRES_COMMAND_OK = 1,
    PGRES_TUPLES_OK = 2,
    PGRES_COPY_OUT = 3,
    PGRES_COPY_IN = 4,
    PGRES_PIPELINE_SYNC = 10,
    PGRES_PIPELINE_ABORTED = 11,
} ExecStatusType;

/// The details in messages of errors.
typedef enum { PQERRORS_TERSE = 0 } PGVerbosity;

/// An option of a connection. An array of them ends with one whose `keyword` is NULL.
typedef struct {
    char *keyword, *envvar, *compiled, *val, *label, *dispchar;
    int dispsize;
} PQconninfoOption;

/// A notification that the server sent: the channel, the sender's process and the payload. libpq allocates it,
/// with more fields.
typedef struct {
    char *relname;
    int be_pid;
    char *extra;
} PGnotify;

typedef void (*PQnoticeProcessor)(void *argument, const char *message);

/// The functions that the store and its tests call, each with its result, name, parameters and arguments.
#define LIBPQ_FUNCTIONS(F) \
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

#define LIBPQ_DECLARE(result, name, parameters, arguments) result name parameters;
LIBPQ_FUNCTIONS(LIBPQ_DECLARE)

/// Loads the library. Must be called before any of its functions.
/// Returns NULL on success, otherwise a message that names the missing library or function.
const char *libpq_load(void);
