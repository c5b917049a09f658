#include "EmbeddedFiles.h"
#include <string.h>

#pragma clang diagnostic ignored "-Wc23-extensions"

// This is C because Swift's compiler needs half a minute for the same bytes as arrays.
#define FILE(file) if (strcmp(name, file) == 0) { static const unsigned char bytes[] = {
#define END }; return (struct EmbeddedFile){bytes, sizeof bytes}; }

struct EmbeddedFile embedded_file(const char *name) {
    FILE("openapi.json")
#embed "../ChatHTTP/Admin/openapi.json"
    END
    FILE("admin-charts.js")
#embed "../ChatHTTP/Web/admin-charts.js"
    END
    FILE("admin-day.js")
#embed "../ChatHTTP/Web/admin-day.js"
    END
    FILE("admin-de.js")
#embed "../ChatHTTP/Web/admin-de.js"
    END
    FILE("admin-en.js")
#embed "../ChatHTTP/Web/admin-en.js"
    END
    FILE("admin-lists.js")
#embed "../ChatHTTP/Web/admin-lists.js"
    END
    FILE("admin-queue.js")
#embed "../ChatHTTP/Web/admin-queue.js"
    END
    FILE("admin-rooms.js")
#embed "../ChatHTTP/Web/admin-rooms.js"
    END
    FILE("admin-tokens.js")
#embed "../ChatHTTP/Web/admin-tokens.js"
    END
    FILE("admin-webhooks.js")
#embed "../ChatHTTP/Web/admin-webhooks.js"
    END
    FILE("admin-usage.js")
#embed "../ChatHTTP/Web/admin-usage.js"
    END
    FILE("admin-verdict.js")
#embed "../ChatHTTP/Web/admin-verdict.js"
    END
    FILE("admin.css")
#embed "../ChatHTTP/Web/admin.css"
    END
    FILE("admin.html")
#embed "../ChatHTTP/Web/admin.html"
    END
    FILE("admin.js")
#embed "../ChatHTTP/Web/admin.js"
    END
    FILE("apps.js")
#embed "../ChatHTTP/Web/apps.js"
    END
    FILE("chat.css")
#embed "../ChatHTTP/Web/chat.css"
    END
    FILE("chat.html")
#embed "../ChatHTTP/Web/chat.html"
    END
    FILE("sheets.js")
#embed "../ChatHTTP/Web/sheets.js"
    END
    FILE("markdown.js")
#embed "../ChatHTTP/Web/markdown.js"
    END
    FILE("chat.js")
#embed "../ChatHTTP/Web/chat.js"
    END
    FILE("docs.css")
#embed "../ChatHTTP/Web/docs.css"
    END
    FILE("docs.html")
#embed "../ChatHTTP/Web/docs.html"
    END
    FILE("docs.js")
#embed "../ChatHTTP/Web/docs.js"
    END
    FILE("icon-192.png")
#embed "../ChatHTTP/Web/icon-192.png"
    END
    FILE("icon-512.png")
#embed "../ChatHTTP/Web/icon-512.png"
    END
    FILE("icon.svg")
#embed "../ChatHTTP/Web/icon.svg"
    END
    FILE("manifest.webmanifest")
#embed "../ChatHTTP/Web/manifest.webmanifest"
    END
    FILE("notify.js")
#embed "../ChatHTTP/Web/notify.js"
    END
    FILE("qr.js")
#embed "../ChatHTTP/Web/qr.js"
    END
    FILE("rooms.js")
#embed "../ChatHTTP/Web/rooms.js"
    END
    FILE("texts.js")
#embed "../WebAssets/texts.js"
    END
    FILE("texts-de.js")
#embed "../ChatHTTP/Web/texts-de.js"
    END
    FILE("texts-en.js")
#embed "../ChatHTTP/Web/texts-en.js"
    END
    FILE("sw.js")
#embed "../ChatHTTP/Web/sw.js"
    END
    FILE("inbox.css")
#embed "../PushSandbox/Web/inbox.css"
    END
    FILE("inbox.html")
#embed "../PushSandbox/Web/inbox.html"
    END
    FILE("inbox.js")
#embed "../PushSandbox/Web/inbox.js"
    END
    FILE("inbox-de.js")
#embed "../PushSandbox/Web/inbox-de.js"
    END
    FILE("inbox-en.js")
#embed "../PushSandbox/Web/inbox-en.js"
    END
    FILE("inbox-preview.js")
#embed "../PushSandbox/Web/inbox-preview.js"
    END
    FILE("inbox-tools.js")
#embed "../PushSandbox/Web/inbox-tools.js"
    END
    FILE("base.css")
#embed "../WebAssets/base.css"
    END
    FILE("base.js")
#embed "../WebAssets/base.js"
    END
    FILE("schema.sql")
#embed "../../schema.sql"
    END
    FILE("schema-postgres.sql")
#embed "../ChatStorePostgres/Server/schema.sql"
    END
    return (struct EmbeddedFile){NULL, 0};
}
