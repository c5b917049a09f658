#include "BuildInfo.h"

const char *pushchat_commit(void) { return PUSHCHAT_COMMIT; }
