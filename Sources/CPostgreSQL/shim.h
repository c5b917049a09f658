// libpq, with its Debian path: then no pkg-config is needed.
#include <postgresql/libpq-fe.h>
