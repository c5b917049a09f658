/*
 * A sender of Web Push in plain C on OpenSSL and nghttp2. It follows RFC 8291, RFC 8292 and RFC 9113, and shares no code
 * with this repository. It has no queue: it creates the messages in memory. THREADS threads encrypt them, each message with
 * its own key pair and salt. It posts them over one connection, all with the same VAPID token.
 *
 *   web_pusher PORT CA.PEM P256DH AUTH COUNT STREAMS THREADS
 *
 * P256DH and AUTH are the browser's keys in hexadecimal. Message N, from 1, is {"notification":{"title":"number N"}} for
 * https://127.0.0.1:PORT/push?N. Prints "SECONDS CPU": the time from the first request to the last response, and the CPU
 * time of this program in it. Fails at the first response that is not 2xx.
 */
#define _GNU_SOURCE
#define OPENSSL_API_COMPAT 0x10100000L
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { POINT = 65, SECRET = 16, SALT = 16, TAG = 16, BODY = 4096, SLOTS = 1024, BUFFER = 256 << 10, NAME = 64 };

struct message {
    char path[NAME];
    size_t size, sent;
    uint8_t body[BODY];
};

static uint8_t receiver[POINT], auth[SECRET];
static long total, made, answered, in_flight;
static char authority[NAME], authorization[1024];

/* Messages that are free, and encrypted messages in their order. */
static struct message slots[SLOTS], *unused[SLOTS], *ready[SLOTS];
static long unused_count, ready_from, ready_to;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_unused = PTHREAD_COND_INITIALIZER, is_ready = PTHREAD_COND_INITIALIZER;

static void fail(const char *what)
{
    fprintf(stderr, "web_pusher: %s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static void require(int holds, const char *what)
{
    if (!holds)
        fail(what);
}

/* --- Encryption (RFC 8291 section 3.4) --- */

static void hmac(const uint8_t *key, size_t key_size, const void *data, size_t size, uint8_t out[32])
{
    require(HMAC(EVP_sha256(), key, (int)key_size, data, size, out, NULL) != NULL, "HMAC");
}

static void encrypt(struct message *message, const char *text, const EC_GROUP *group, EVP_CIPHER_CTX *cipher)
{
    size_t length = strlen(text);
    uint8_t *out = message->body, *sender = out + SALT + 5, *sealed = sender + POINT;
    uint8_t agreed[32], prk[32], input[32], content_key[32], nonce[32], info[14 + 2 * POINT + 1] = "WebPush: info";
    EC_KEY *key = EC_KEY_new();
    EC_POINT *peer = EC_POINT_new(group);
    int size;
    require(key && peer && EC_KEY_set_group(key, group) && EC_KEY_generate_key(key), "key pair");
    require(EC_POINT_oct2point(group, peer, receiver, POINT, NULL), "p256dh");
    require(ECDH_compute_key(agreed, sizeof agreed, peer, key, NULL) == sizeof agreed, "ECDH");
    require(RAND_bytes(out, SALT), "salt");
    memcpy(out + SALT, "\0\0\x10\0\x41", 5);
    EC_POINT_point2oct(group, EC_KEY_get0_public_key(key), POINT_CONVERSION_UNCOMPRESSED, sender, POINT, NULL);
    EC_POINT_free(peer);
    EC_KEY_free(key);

    memcpy(info + 14, receiver, POINT);
    memcpy(info + 14 + POINT, sender, POINT);
    info[sizeof info - 1] = 1;
    hmac(auth, SECRET, agreed, sizeof agreed, prk);
    hmac(prk, sizeof prk, info, sizeof info, input);
    hmac(out, SALT, input, sizeof input, prk);
    hmac(prk, sizeof prk, "Content-Encoding: aes128gcm\0\1", 29, content_key);
    hmac(prk, sizeof prk, "Content-Encoding: nonce\0\1", 25, nonce);

    require(EVP_EncryptInit_ex(cipher, NULL, NULL, content_key, nonce)
            && EVP_EncryptUpdate(cipher, sealed, &size, (const uint8_t *)text, (int)length)
            && EVP_EncryptUpdate(cipher, sealed + length, &size, (const uint8_t *)"\2", 1)
            && EVP_EncryptFinal_ex(cipher, sealed + length + 1, &size)
            && EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, TAG, sealed + length + 1), "AES-128-GCM");
    message->size = (size_t)(sealed - out) + length + 1 + TAG;
}

static void *make_messages(void *nothing)
{
    EC_GROUP *group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    (void)nothing;
    require(cipher && EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), NULL, NULL, NULL), "AES-128-GCM");
    for (;;) {
        char text[NAME];
        pthread_mutex_lock(&lock);
        while (made < total && unused_count == 0)
            pthread_cond_wait(&is_unused, &lock);
        if (made == total)
            break;
        struct message *message = unused[--unused_count];
        long number = ++made;
        pthread_mutex_unlock(&lock);
        snprintf(text, sizeof text, "{\"notification\":{\"title\":\"number %ld\"}}", number);
        snprintf(message->path, sizeof message->path, "/push?%ld", number);
        message->sent = 0;
        encrypt(message, text, group, cipher);
        pthread_mutex_lock(&lock);
        ready[ready_to++ % SLOTS] = message;
        pthread_cond_signal(&is_ready);
        pthread_mutex_unlock(&lock);
    }
    /* Other threads that wait for a free message have no more messages to create either. */
    pthread_cond_broadcast(&is_unused);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* --- The sender's token (RFC 8292) --- */

static void base64url(const uint8_t *bytes, size_t size, char *out)
{
    size_t length = (size_t)EVP_EncodeBlock((uint8_t *)out, bytes, (int)size);
    while (length && out[length - 1] == '=')
        out[--length] = 0;
    for (; *out; out++)
        *out = *out == '+' ? '-' : *out == '/' ? '_' : *out;
}

static void make_authorization(void)
{
    char claims[256], head[64], body[512], token[700], signature[128], public[128];
    uint8_t digest[32], raw[64], point[POINT];
    EC_KEY *key = EC_KEY_new_by_curve_name(NID_X9_62_prime256v1);
    require(key && EC_KEY_generate_key(key), "the sender's key");
    snprintf(claims, sizeof claims, "{\"aud\":\"https://%s\",\"exp\":%lld,\"sub\":\"mailto:push@example.org\"}", authority,
        (long long)time(NULL) + 3600);
    base64url((const uint8_t *)"{\"typ\":\"JWT\",\"alg\":\"ES256\"}", 27, head);
    base64url((const uint8_t *)claims, strlen(claims), body);
    int size = snprintf(token, sizeof token, "%s.%s", head, body);
    SHA256((const uint8_t *)token, (size_t)size, digest);
    ECDSA_SIG *sig = ECDSA_do_sign(digest, sizeof digest, key);
    require(sig && BN_bn2binpad(ECDSA_SIG_get0_r(sig), raw, 32) == 32 && BN_bn2binpad(ECDSA_SIG_get0_s(sig), raw + 32, 32) == 32,
        "signature");
    base64url(raw, sizeof raw, signature);
    EC_POINT_point2oct(EC_KEY_get0_group(key), EC_KEY_get0_public_key(key), POINT_CONVERSION_UNCOMPRESSED, point, POINT, NULL);
    base64url(point, sizeof point, public);
    snprintf(authorization, sizeof authorization, "vapid t=%s.%s,k=%s", token, signature, public);
    ECDSA_SIG_free(sig);
    EC_KEY_free(key);
}

/* --- Requests --- */

static ssize_t read_body(nghttp2_session *session, int32_t stream, uint8_t *out, size_t length, uint32_t *flags,
    nghttp2_data_source *source, void *nothing)
{
    struct message *message = source->ptr;
    size_t size = message->size - message->sent;
    (void)session, (void)stream, (void)nothing;
    if (size > length)
        size = length;
    memcpy(out, message->body + message->sent, size);
    message->sent += size;
    if (message->sent == message->size)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)size;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
    const uint8_t *value, size_t length, uint8_t flags, void *nothing)
{
    (void)session, (void)frame, (void)flags, (void)nothing;
    if (name_length == 7 && memcmp(name, ":status", 7) == 0)
        require(length == 3 && value[0] == '2', (const char *)value);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t code, void *nothing)
{
    (void)nothing;
    require(code == 0, "a stream was reset");
    pthread_mutex_lock(&lock);
    unused[unused_count++] = nghttp2_session_get_stream_user_data(session, stream);
    pthread_cond_signal(&is_unused);
    pthread_mutex_unlock(&lock);
    in_flight--;
    answered++;
    return 0;
}

static void submit(nghttp2_session *session, struct message *message)
{
#define FIELD(name, value, size) {(uint8_t *)name, (uint8_t *)(value), sizeof name - 1, size, NGHTTP2_NV_FLAG_NONE}
    char length[16];
    int digits = snprintf(length, sizeof length, "%zu", message->size);
    nghttp2_nv fields[] = {
        FIELD(":method", "POST", 4), FIELD(":scheme", "https", 5), FIELD(":authority", authority, strlen(authority)),
        FIELD(":path", message->path, strlen(message->path)), FIELD("content-type", "application/octet-stream", 24),
        FIELD("content-encoding", "aes128gcm", 9), FIELD("ttl", "2419200", 7), FIELD("urgency", "high", 4),
        FIELD("authorization", authorization, strlen(authorization)), FIELD("content-length", length, (size_t)digits),
    };
    nghttp2_data_provider body = {.source.ptr = message, .read_callback = read_body};
    require(nghttp2_submit_request(session, NULL, fields, sizeof fields / sizeof *fields, &body, message) > 0, "submit");
    in_flight++;
}

/* Submits encrypted messages. Waits for one only if no response is outstanding. */
static void submit_ready(nghttp2_session *session, long streams)
{
    pthread_mutex_lock(&lock);
    while (in_flight == 0 && answered < total && ready_from == ready_to)
        pthread_cond_wait(&is_ready, &lock);
    while (in_flight < streams && ready_from < ready_to)
        submit(session, ready[ready_from++ % SLOTS]);
    pthread_mutex_unlock(&lock);
}

static void flush(nghttp2_session *session, SSL *tls, uint8_t *buffer)
{
    size_t used = 0;
    const uint8_t *bytes;
    ssize_t size;
    while ((size = nghttp2_session_mem_send(session, &bytes)) > 0) {
        if (used + (size_t)size > BUFFER) {
            require(SSL_write(tls, buffer, (int)used) > 0, "cannot write");
            used = 0;
        }
        memcpy(buffer + used, bytes, (size_t)size);
        used += (size_t)size;
    }
    require(size == 0 && (used == 0 || SSL_write(tls, buffer, (int)used) > 0), "cannot write");
}

static SSL *connect_to(int port, const char *trust)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int connection = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    require(connect(connection, (struct sockaddr *)&address, sizeof address) == 0, "cannot connect");
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    require(context && SSL_CTX_load_verify_locations(context, trust, NULL), "the authority cannot be read");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_alpn_protos(context, (const uint8_t *)"\2h2", 3);
    SSL *tls = SSL_new(context);
    require(tls && X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), "127.0.0.1"), "TLS");
    SSL_set_fd(tls, connection);
    require(SSL_connect(tls) == 1, "TLS");
    return tls;
}

static void read_hex(const char *text, uint8_t *out, size_t size)
{
    size_t length;
    require(OPENSSL_hexstr2buf_ex(out, size, &length, text, 0) && length == size, "the browser's keys are no such");
}

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

static double cpu(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *session;
    static uint8_t buffer[BUFFER];
    pthread_t thread;
    if (argc != 8)
        return 2;
    read_hex(argv[3], receiver, POINT);
    read_hex(argv[4], auth, SECRET);
    total = atol(argv[5]);
    snprintf(authority, sizeof authority, "127.0.0.1:%s", argv[1]);
    for (struct message *slot = slots; slot < slots + SLOTS; slot++)
        unused[unused_count++] = slot;
    make_authorization();
    SSL *tls = connect_to(atoi(argv[1]), argv[2]);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_client_new(&session, callbacks, NULL);
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0);

    double begin = now(), used = cpu();
    for (int number = 0; number < atoi(argv[7]); number++)
        require(pthread_create(&thread, NULL, make_messages, NULL) == 0, "no thread");
    while (answered < total) {
        submit_ready(session, atol(argv[6]));
        flush(session, tls, buffer);
        int got = SSL_read(tls, buffer, BUFFER);
        require(got > 0, "the service closed");
        require(nghttp2_session_mem_recv(session, buffer, (size_t)got) == got, "no HTTP/2");
    }
    printf("%.6f %.6f\n", now() - begin, cpu() - used);
    return 0;
}
