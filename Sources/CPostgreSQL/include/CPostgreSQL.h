#pragma once
// libpq, loaded when it is needed: it brings some twenty libraries, which an executable without a PostgreSQL shall not load.
#if __has_include(<postgresql/libpq-fe.h>)
#include <postgresql/libpq-fe.h>

/// Loads the library; to be called before any of its functions. NULL when it is there, else what is missing.
const char *libpq_load(void);
#endif
