/*
 * A gateway that counts pushes, in plain C on OpenSSL and nghttp2. It follows Apple's description of the two protocols and
 * shares no code with this repository. TLS negotiates the protocol (ALPN): "h2" is HTTP/2, and without ALPN it is the
 * legacy binary protocol. The gateway accepts everything: over HTTP/2 with the status 200, over the binary protocol
 * silently. There, it responds to a notification without a token with the error packet and closes the connection.
 *
 *   sink CERTIFICATE-AND-KEY.PEM
 *
 * Prints its port. Then it reads commands, one per line:
 *   expect COUNT [ROOM]  forgets earlier notifications; after COUNT different notifications, prints
 *                        "arrived SECONDS REPEATS", from the first byte to the last notification
 *   count                prints "counted DIFFERENT REPEATS" for the notifications until now
 *   times FILE           writes "NUMBER NANOSECONDS" for each, in nanoseconds of CLOCK_MONOTONIC; prints "written"
 * A message's number follows the sign # in the payload. A device's number is in the last four bytes of its token. A
 * notification has the message's number, or without the sign # the device's. With ROOM, many devices get the same message,
 * and the notification's number is MESSAGE * ROOM + DEVICE % ROOM.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4 << 20, BUFFER = 256 << 10, HEAD = 5, LONGEST = 16 << 10, PAYLOAD = 4096 };

static SSL_CTX *context;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t arrived_at[MOST];
static int64_t first_byte;
static long expected, room, distinct, repeats;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void count(const unsigned char *payload, size_t length, uint32_t device, int64_t time)
{
    const unsigned char *sign = memchr(payload, '#', length);
    int64_t number = 0;
    if (sign)
        for (sign++; sign < payload + length && *sign >= '0' && *sign <= '9'; sign++)
            number = number * 10 + (*sign - '0');
    if (!sign)
        number = device;
    else if (room)
        number = number * room + device % room;
    if (number >= MOST)
        return;
    if (arrived_at[number]) {
        repeats++;
        return;
    }
    arrived_at[number] = time;
    if (++distinct == expected) {
        printf("arrived %.6f %ld\n", (double)(now() - first_byte) / 1e9, repeats);
        fflush(stdout);
    }
}

/* Reads the items of a notification with command 2. Returns 0 if it has no token. */
static int take(const unsigned char *frame, size_t size, int64_t time, uint32_t *identifier)
{
    const unsigned char *payload = frame;
    size_t payload_length = 0;
    uint32_t device = 0;
    int has_token = 0;
    for (size_t at = 0; at + 3 <= size;) {
        size_t length = (size_t)frame[at + 1] << 8 | frame[at + 2];
        const unsigned char *item = frame + at + 3;
        if (at + 3 + length > size)
            break;
        if (frame[at] == 1 && length >= 4) {
            has_token = 1;
            memcpy(&device, item + length - 4, 4);
        } else if (frame[at] == 2) {
            payload = item;
            payload_length = length;
        } else if (frame[at] == 3 && length == 4) {
            memcpy(identifier, item, 4);
        }
        at += 3 + length;
    }
    if (has_token)
        count(payload, payload_length, ntohl(device), time);
    return has_token;
}

static void serve_binary(SSL *tls)
{
    unsigned char *buffer = malloc(BUFFER);
    size_t used = 0;
    int is_over = !buffer;
    while (!is_over) {
        int got = SSL_read(tls, buffer + used, (int)(BUFFER - used));
        if (got <= 0)
            break;
        used += (size_t)got;
        size_t at = 0;
        pthread_mutex_lock(&lock);
        int64_t time = now();
        if (!first_byte)
            first_byte = time;
        while (!is_over && used - at >= HEAD) {
            size_t size = (size_t)buffer[at + 1] << 24 | (size_t)buffer[at + 2] << 16 | (size_t)buffer[at + 3] << 8 | buffer[at + 4];
            uint32_t identifier = 0;
            if (buffer[at] != 2 || size > LONGEST) {
                fprintf(stderr, "sink: invalid frame\n");
                is_over = 1;
            } else if (used - at - HEAD < size) {
                break;
            } else if (!take(buffer + at + HEAD, size, time, &identifier)) {
                unsigned char error[6] = {8, 2};
                memcpy(error + 2, &identifier, 4);
                SSL_write(tls, error, sizeof error);
                is_over = 1;
            } else {
                at += HEAD + size;
            }
        }
        pthread_mutex_unlock(&lock);
        memmove(buffer, buffer + at, used - at);
        used -= at;
    }
    free(buffer);
}

/* One request over HTTP/2. */
struct push {
    uint32_t device;
    size_t used;
    unsigned char payload[PAYLOAD];
};

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *unused)
{
    (void)unused;
    struct push *push = malloc(sizeof *push);
    if (!push)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    push->device = 0;
    push->used = 0;
    return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, push);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
    const uint8_t *value, size_t length, uint8_t flags, void *unused)
{
    (void)flags, (void)unused;
    struct push *push = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    /* /3/device/TOKEN; nghttp2 ends each value with a zero. */
    if (push && name_length == 5 && memcmp(name, ":path", 5) == 0 && length > 8)
        push->device = (uint32_t)strtoul((const char *)value + length - 8, NULL, 16);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data, size_t length, void *unused)
{
    (void)flags, (void)unused;
    struct push *push = nghttp2_session_get_stream_user_data(session, stream);
    if (!push || length > PAYLOAD - push->used)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    memcpy(push->payload + push->used, data, length);
    push->used += length;
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *time)
{
    nghttp2_nv status = {(uint8_t *)":status", (uint8_t *)"200", 7, 3, NGHTTP2_NV_FLAG_NONE};
    struct push *push = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!push || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    count(push->payload, push->used, push->device, *(int64_t *)time);
    return nghttp2_submit_response(session, frame->hd.stream_id, &status, 1, NULL);
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t code, void *unused)
{
    (void)code, (void)unused;
    free(nghttp2_session_get_stream_user_data(session, stream));
    return 0;
}

/* Writes the session's pending output, in as few records as possible. */
static int flush(nghttp2_session *session, SSL *tls, unsigned char *buffer)
{
    size_t used = 0;
    const uint8_t *bytes;
    ssize_t size;
    while ((size = nghttp2_session_mem_send(session, &bytes)) > 0) {
        if (used + (size_t)size > BUFFER) {
            if (SSL_write(tls, buffer, (int)used) <= 0)
                return 0;
            used = 0;
        }
        memcpy(buffer + used, bytes, (size_t)size);
        used += (size_t)size;
    }
    return size == 0 && (used == 0 || SSL_write(tls, buffer, (int)used) > 0);
}

static void serve_http2(SSL *tls)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *session;
    nghttp2_settings_entry settings = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1000};
    unsigned char *buffer = malloc(BUFFER);
    int64_t time;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_server_new(&session, callbacks, &time);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, &settings, 1);
    while (buffer && flush(session, tls, buffer)) {
        int got = SSL_read(tls, buffer, BUFFER);
        if (got <= 0)
            break;
        pthread_mutex_lock(&lock);
        time = now();
        if (!first_byte)
            first_byte = time;
        ssize_t taken = nghttp2_session_mem_recv(session, buffer, (size_t)got);
        pthread_mutex_unlock(&lock);
        if (taken < 0) {
            fprintf(stderr, "sink: %s\n", nghttp2_strerror((int)taken));
            break;
        }
    }
    nghttp2_session_del(session);
    free(buffer);
}

static void *serve(void *argument)
{
    int connection = (int)(intptr_t)argument;
    SSL *tls = SSL_new(context);
    const unsigned char *protocol;
    unsigned length = 0;
    SSL_set_fd(tls, connection);
    if (SSL_accept(tls) == 1) {
        SSL_get0_alpn_selected(tls, &protocol, &length);
        if (length)
            serve_http2(tls);
        else
            serve_binary(tls);
        SSL_shutdown(tls);
    }
    SSL_free(tls);
    close(connection);
    return NULL;
}

static int select_protocol(SSL *tls, const unsigned char **out, unsigned char *out_length, const unsigned char *in,
    unsigned length, void *unused)
{
    (void)tls, (void)unused;
    return nghttp2_select_next_protocol((unsigned char **)out, out_length, in, length) == 1
        ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

static void *listen_on(void *argument)
{
    int listener = (int)(intptr_t)argument;
    int yes = 1;
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        pthread_t thread;
        if (connection < 0)
            return NULL;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)connection) != 0)
            close(connection);
        else
            pthread_detach(thread);
    }
}

int main(int argc, char **argv)
{
    char line[4096];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    pthread_t thread;
    if (argc != 2)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_alpn_select_cb(context, select_protocol, NULL);
    if (SSL_CTX_use_certificate_chain_file(context, argv[1]) != 1
        || SSL_CTX_use_PrivateKey_file(context, argv[1], SSL_FILETYPE_PEM) != 1) {
        ERR_print_errors_fp(stderr);
        return 1;
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 64) != 0
        || getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        return 1;
    pthread_create(&thread, NULL, listen_on, (void *)(intptr_t)listener);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        pthread_mutex_lock(&lock);
        if (strncmp(line, "expect ", 7) == 0) {
            memset(arrived_at, 0, sizeof arrived_at);
            expected = room = 0;
            sscanf(line + 7, "%ld %ld", &expected, &room);
            distinct = repeats = 0;
            first_byte = 0;
        } else if (strcmp(line, "count\n") == 0) {
            printf("counted %ld %ld\n", distinct, repeats);
            fflush(stdout);
        } else if (strncmp(line, "times ", 6) == 0) {
            line[strcspn(line, "\n")] = 0;
            FILE *file = fopen(line + 6, "w");
            for (uint32_t number = 0; file && number < MOST; number++)
                if (arrived_at[number])
                    fprintf(file, "%u %lld\n", number, (long long)arrived_at[number]);
            if (file)
                fclose(file);
            printf("written\n");
            fflush(stdout);
        }
        pthread_mutex_unlock(&lock);
    }
    return 0;
}
