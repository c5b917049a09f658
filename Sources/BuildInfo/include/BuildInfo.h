/// Returns the short hash of the commit that was built. Empty unless the build sets it, as `make release` does.
const char *_Nonnull pushchat_commit(void);
