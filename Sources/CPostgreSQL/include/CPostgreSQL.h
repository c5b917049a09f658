#pragma once
// libpq, loaded on demand. It depends on about twenty libraries, which a relay without PostgreSQL should not load.
#if __has_include(<postgresql/libpq-fe.h>)
#include <postgresql/libpq-fe.h>

/// Loads the library. Must be called before any of its functions.
/// Returns NULL on success, otherwise a message that names the missing library or function.
const char *libpq_load(void);
#endif
