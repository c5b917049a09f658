/*
 * A gateway of the legacy binary protocol that counts what arrives, in plain C on OpenSSL: from Apple's description of the
 * wire format, and from nothing in this repository. It accepts everything, silently; a notification without a token is
 * answered with the error packet and the end of the connection.
 *
 *   sink CERTIFICATE-AND-KEY.PEM
 *
 * Prints its port. Then it takes commands, a line each:
 *   expect COUNT   forget what came; when COUNT different notifications have come, it prints
 *                  "arrived SECONDS REPEATS", from the first byte to the last notification
 *   count          prints "counted DIFFERENT REPEATS" of what has come until now
 *   times FILE     writes "NUMBER NANOSECONDS" of each, on the clock of CLOCK_MONOTONIC; prints "written"
 * A notification's number follows the sign # in its payload, or stands in the last four bytes of its token.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
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

enum { MOST = 4 << 20, BUFFER = 256 << 10, HEAD = 5, LONGEST = 16 << 10 };

static SSL_CTX *context;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t arrived_at[MOST];
static int64_t first_byte;
static long expected, distinct, repeats;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void count(uint32_t number, int64_t time)
{
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
    uint32_t number = 0;
    int has_token = 0, is_numbered = 0;
    for (size_t at = 0; at + 3 <= size;) {
        size_t length = (size_t)frame[at + 1] << 8 | frame[at + 2];
        const unsigned char *item = frame + at + 3;
        if (at + 3 + length > size)
            break;
        if (frame[at] == 1 && length >= 4) {
            has_token = 1;
            if (!is_numbered) {
                memcpy(&number, item + length - 4, 4);
                number = ntohl(number);
            }
        } else if (frame[at] == 2) {
            const unsigned char *sign = memchr(item, '#', length);
            if (sign) {
                is_numbered = 1;
                number = 0;
                for (sign++; sign < item + length && *sign >= '0' && *sign <= '9'; sign++)
                    number = number * 10 + (uint32_t)(*sign - '0');
            }
        } else if (frame[at] == 3 && length == 4) {
            memcpy(identifier, item, 4);
        }
        at += 3 + length;
    }
    if (has_token)
        count(number, time);
    return has_token;
}

static void *serve(void *argument)
{
    int connection = (int)(intptr_t)argument;
    SSL *tls = SSL_new(context);
    unsigned char *buffer = malloc(BUFFER);
    size_t used = 0;
    SSL_set_fd(tls, connection);
    if (!buffer || SSL_accept(tls) != 1)
        goto end;
    for (;;) {
        int got = SSL_read(tls, buffer + used, (int)(BUFFER - used));
        if (got <= 0)
            break;
        used += (size_t)got;
        size_t at = 0;
        int is_over = 0;
        pthread_mutex_lock(&lock);
        int64_t time = now();
        if (!first_byte)
            first_byte = time;
        while (!is_over && used - at >= HEAD) {
            size_t size = (size_t)buffer[at + 1] << 24 | (size_t)buffer[at + 2] << 16 | (size_t)buffer[at + 3] << 8 | buffer[at + 4];
            uint32_t identifier = 0;
            if (buffer[at] != 2 || size > LONGEST) {
                fprintf(stderr, "sink: a frame that is none\n");
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
        if (is_over)
            break;
        memmove(buffer, buffer + at, used - at);
        used -= at;
    }
    SSL_shutdown(tls);
end:
    SSL_free(tls);
    close(connection);
    free(buffer);
    return NULL;
}

static void *listen_on(void *argument)
{
    int listener = (int)(intptr_t)argument;
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        pthread_t thread;
        if (connection < 0)
            return NULL;
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
            expected = atol(line + 7);
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
