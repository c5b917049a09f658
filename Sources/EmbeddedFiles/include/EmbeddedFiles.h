#include <stddef.h>

/// A file of this repository, as of the build of the executable.
struct EmbeddedFile {
    const unsigned char *_Nullable bytes;
    size_t count;
};

/// Returns the embedded file with this name. `bytes` is null if there is none.
struct EmbeddedFile embedded_file(const char *_Nonnull name);
