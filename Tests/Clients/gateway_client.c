/*
 * A provider of the legacy binary protocol in plain C on OpenSSL. It follows Apple's description of the wire format and
 * shares no code with this repository, so it checks the sandbox independently.
 *
 *   gateway_client ADDRESS PORT CLIENT.PEM CA.PEM COUNT [EACH]
 *
 * Sends COUNT notifications with command 2 and the identifiers 1 to COUNT, each to a token that is its identifier, and
 * then one without a token. Writes EACH at a time; by default as many as fit into a TLS record. Prints the response in
 * hexadecimal. Status: 0 an error packet came, 1 something else, 2 usage, 3 not connected, 4 TLS was refused.
 */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { COMMAND = 2, TOKEN_SIZE = 32, BATCH_SIZE = 16384, PATIENCE_SECONDS = 20, ERROR_SIZE = 6 };
enum { ITEM_TOKEN = 1, ITEM_PAYLOAD = 2, ITEM_IDENTIFIER = 3, ITEM_EXPIRATION = 4, ITEM_PRIORITY = 5 };

static unsigned char batch[BATCH_SIZE];
static size_t used;

static void put(const void *bytes, size_t size)
{
    memcpy(batch + used, bytes, size);
    used += size;
}

static void put_byte(unsigned value)
{
    batch[used++] = (unsigned char)value;
}

static void put_short(size_t value)
{
    uint16_t wire = htons((uint16_t)value);
    put(&wire, sizeof wire);
}

static void put_long(uint32_t value)
{
    uint32_t wire = htonl(value);
    put(&wire, sizeof wire);
}

static void put_item(unsigned id, const void *bytes, size_t size)
{
    put_byte(id);
    put_short(size);
    put(bytes, size);
}

static void put_notification(uint32_t identifier, size_t token_size)
{
    unsigned char token[TOKEN_SIZE] = {0};
    uint32_t wire = htonl(identifier);
    memcpy(token + TOKEN_SIZE - sizeof wire, &wire, sizeof wire);
    char payload[128];
    size_t payload_size = (size_t)snprintf(
        payload, sizeof payload, "{\"aps\":{\"alert\":\"number %lu\",\"sound\":\"default\"}}", (unsigned long)identifier);

    put_byte(COMMAND);
    put_long((uint32_t)((3 + token_size) + (3 + payload_size) + (3 + 4) + (3 + 4) + (3 + 1)));
    put_item(ITEM_TOKEN, token, token_size);
    put_item(ITEM_PAYLOAD, payload, payload_size);
    put_byte(ITEM_IDENTIFIER);
    put_short(4);
    put_long(identifier);
    put_byte(ITEM_EXPIRATION);
    put_short(4);
    put_long(0x7FFFFFFF);
    put_byte(ITEM_PRIORITY);
    put_short(1);
    put_byte(10);
}

static int fail(int status, const char *what)
{
    fprintf(stderr, "%s\n", what);
    ERR_print_errors_fp(stderr);
    return status;
}

static int flush(SSL *tls)
{
    size_t done = 0;
    while (done < used) {
        int written = SSL_write(tls, batch + done, (int)(used - done));
        if (written <= 0)
            return 0;
        done += (size_t)written;
    }
    used = 0;
    return 1;
}

static int talk(SSL *tls, uint32_t count, uint32_t each)
{
    for (uint32_t identifier = 1; identifier <= count; identifier++) {
        put_notification(identifier, TOKEN_SIZE);
        if ((used > BATCH_SIZE - 512 || (each && identifier % each == 0)) && !flush(tls))
            return fail(4, "cannot write");
    }
    put_notification(count + 1, 0);
    if (!flush(tls))
        return fail(4, "cannot write");

    unsigned char answer[64];
    int size = 0;
    while (size < (int)sizeof answer) {
        int got = SSL_read(tls, answer + size, (int)sizeof answer - size);
        if (got <= 0) {
            if (SSL_get_error(tls, got) == SSL_ERROR_ZERO_RETURN)
                break;
            return fail(4, "cannot read");
        }
        size += got;
    }
    for (int index = 0; index < size; index++)
        printf("%02x", answer[index]);
    printf("\n");
    return size == ERROR_SIZE && answer[0] == 8 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: gateway_client ADDRESS PORT CLIENT.PEM CA.PEM COUNT [EACH]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1)
        return fail(2, "not an IPv4 address");

    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context || SSL_CTX_use_certificate_chain_file(context, argv[3]) != 1
        || SSL_CTX_use_PrivateKey_file(context, argv[3], SSL_FILETYPE_PEM) != 1
        || SSL_CTX_check_private_key(context) != 1 || SSL_CTX_load_verify_locations(context, argv[4], NULL) != 1)
        return fail(2, "cannot use the certificates");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);

    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (descriptor < 0 || connect(descriptor, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("cannot connect");
        return 3;
    }
    SSL *tls = SSL_new(context);
    int status;
    if (!tls || !SSL_set_fd(tls, descriptor) || !X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), argv[1])
        || SSL_connect(tls) != 1)
        status = fail(4, "no TLS");
    else
        status = talk(tls, (uint32_t)strtoul(argv[5], NULL, 10), argc == 7 ? (uint32_t)strtoul(argv[6], NULL, 10) : 0);
    SSL_free(tls);
    SSL_CTX_free(context);
    close(descriptor);
    return status;
}
