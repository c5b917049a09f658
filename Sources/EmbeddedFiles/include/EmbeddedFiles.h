#include <stddef.h>

/// A file of this repository, as it was when the executable was built.
struct EmbeddedFile {
    const unsigned char *_Nullable bytes;
    size_t count;
};

/// The file of that name; without bytes where none is embedded.
struct EmbeddedFile embedded_file(const char *_Nonnull name);
