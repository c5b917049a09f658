/// The commit that was built, short; empty where the build was not told (`make release` tells it).
const char *_Nonnull pushchat_commit(void);
