/*
 * The shortest way from a post to a gateway, without a store. An HTTP server in plain C on OpenSSL, for one connection
 * after another. It turns each request into a notification of the legacy binary protocol, writes that to the gateway, and
 * responds. Its latency is the latency of a message without a store.
 *
 *   handler ADDRESS PORT CLIENT.PEM
 *
 * Prints its port. The text after "text=" becomes the alert.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int notification(unsigned char *frame, const char *text)
{
    char payload[1024];
    int length = snprintf(payload, sizeof payload, "{\"aps\":{\"alert\":\"name0: %s\",\"sound\":\"default\"}}", text);
    size_t at = 5;
    memset(frame, 0, 40);
    frame[0] = 2;
    frame[at] = 1, frame[at + 2] = 32, at += 3 + 32;
    frame[at] = 2, frame[at + 1] = (unsigned char)(length >> 8), frame[at + 2] = (unsigned char)length;
    memcpy(frame + at + 3, payload, (size_t)length);
    at += 3 + (size_t)length;
    frame[3] = (unsigned char)((at - 5) >> 8), frame[4] = (unsigned char)(at - 5);
    return (int)at;
}

static int is_whole(const char *request)
{
    const char *body = strstr(request, "\r\n\r\n");
    const char *length = strcasestr(request, "content-length:");
    return body && length && strlen(body + 4) >= strtoul(length + 15, NULL, 10);
}

int main(int argc, char **argv)
{
    int yes = 1;
    struct sockaddr_in gateway = {.sin_family = AF_INET}, address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (argc != 4 || inet_pton(AF_INET, argv[1], &gateway.sin_addr) != 1)
        return 2;
    gateway.sin_port = htons((uint16_t)atoi(argv[2]));
    signal(SIGPIPE, SIG_IGN);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (SSL_CTX_use_certificate_chain_file(context, argv[3]) != 1
        || SSL_CTX_use_PrivateKey_file(context, argv[3], SSL_FILETYPE_PEM) != 1)
        return 2;
    int out = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    SSL *tls = SSL_new(context);
    SSL_set_fd(tls, out);
    if (connect(out, (struct sockaddr *)&gateway, sizeof gateway) != 0 || SSL_connect(tls) != 1)
        return 3;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 8) != 0
        || getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        return 3;
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        char request[8192];
        unsigned char frame[2048];
        size_t used = 0;
        for (;;) {
            ssize_t got = read(client, request + used, sizeof request - 1 - used);
            if (got <= 0)
                break;
            used += (size_t)got;
            request[used] = 0;
            if (!is_whole(request))
                continue;
            const char *text = strstr(request, "text=");
            const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nOK\n";
            if (SSL_write(tls, frame, notification(frame, text ? text + 5 : "")) <= 0
                || write(client, answer, sizeof answer - 1) < 0)
                break;
            used = 0;
        }
        close(client);
    }
}
