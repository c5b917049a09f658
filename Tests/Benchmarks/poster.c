/*
 * Posts chat messages over 64 connections that stay open, from one thread, in plain C.
 *
 *   poster PORT[,PORT...] MEMBERS SECONDS MOST RATE FILE
 *
 * PORT      the connections are spread over several ports
 * MEMBERS   message N comes from member N % MEMBERS; 0: forms without a member, which the relay rejects
 * SECONDS   the time for posts; the program then waits for the remaining responses
 * MOST      the maximum number of messages, numbered from 1
 * RATE      posts per second, sent on time even if earlier responses are missing; 0: a connection posts again as soon as
 *           it has its response
 * FILE      gets "NUMBER BEGUN ANSWERED" for each message, in nanoseconds of CLOCK_MONOTONIC; with a rate, BEGUN is the
 *           time at which the post was due
 *
 * Prints "ANSWERED ACCEPTED SECONDS": the number of responses, the number with status 200, and the time from the first post
 * to the last response.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 64, LONGEST = 8192 };
static const int64_t SECOND = 1000000000;

struct connection {
    int socket;
    long number;
    size_t used;
    char answer[LONGEST];
};

static struct connection connections[CONNECTIONS];
static long members;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "poster: %s\n", what);
    exit(1);
}

static void post(struct connection *connection, long number)
{
    char body[256], request[512];
    int length = members
        ? snprintf(body, sizeof body, "cmd=message&udid=%040ld&text=message+%%23%ld", number % members, number)
        : snprintf(body, sizeof body, "cmd=message&text=message+%%23%ld", number);
    int size = snprintf(
        request, sizeof request,
        "POST /api.php HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        "Content-Length: %d\r\n\r\n%s", length, body);
    connection->number = number;
    connection->used = 0;
    if (write(connection->socket, request, (size_t)size) != size)
        fail("a connection does not take a request");
}

/* Reads the available bytes. Returns the status if the response is complete, otherwise 0. */
static int read_answer(struct connection *connection)
{
    ssize_t got = read(connection->socket, connection->answer + connection->used, LONGEST - 1 - connection->used);
    if (got <= 0)
        fail("a connection ended without an answer");
    connection->used += (size_t)got;
    connection->answer[connection->used] = 0;
    const char *body = strstr(connection->answer, "\r\n\r\n");
    if (!body)
        return 0;
    const char *length = strcasestr(connection->answer, "\r\ncontent-length:");
    if (!length || length > body)
        fail("an answer without its length");
    return strlen(body + 4) >= strtoul(length + 17, NULL, 10) ? atoi(connection->answer + 9) : 0;
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    struct sockaddr_in relay = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *port = argv[1];
    members = atol(argv[2]);
    double seconds = atof(argv[3]), rate = atof(argv[5]);
    long most = atol(argv[4]);
    FILE *file = fopen(argv[6], "w");
    struct {
        int64_t begun, answered;
    } *times = calloc((size_t)most + 1, sizeof *times);
    if (!file || !times)
        fail("no file or no memory");

    struct connection *idle[CONNECTIONS];
    int idle_count = 0, poll = epoll_create1(0), yes = 1;
    for (struct connection *one = connections; one < connections + CONNECTIONS; one++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
        relay.sin_port = htons((uint16_t)atoi(port));
        port = strchr(port, ',') ? strchr(port, ',') + 1 : argv[1];
        one->socket = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(one->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        if (connect(one->socket, (struct sockaddr *)&relay, sizeof relay) != 0
            || epoll_ctl(poll, EPOLL_CTL_ADD, one->socket, &event) != 0)
            fail("not connected");
        idle[idle_count++] = one;
    }

    long begun = 0, answered = 0, accepted = 0;
    int64_t begin = now(), end = begin + (int64_t)(seconds * (double)SECOND), last = begin;
    for (;;) {
        int64_t time = now(), due = time;
        for (; idle_count && begun < most; begun++) {
            due = rate > 0 ? begin + (int64_t)((double)begun / rate * (double)SECOND) : time;
            if (due > time || due >= end)
                break;
            times[begun + 1].begun = due;
            post(idle[--idle_count], begun + 1);
        }
        int is_over = begun == most || time >= end || due >= end;
        if (is_over && answered == begun)
            break;
        int64_t pause = !is_over && due > time ? due - time : SECOND;
        struct timespec patience = {pause / SECOND, pause % SECOND};
        struct epoll_event events[CONNECTIONS];
        int count = epoll_pwait2(poll, events, CONNECTIONS, &patience, NULL);
        if (count == 0 && now() > end + 30 * SECOND)
            fail("no answer for 30 seconds");
        for (int index = 0; index < count; index++) {
            struct connection *one = events[index].data.ptr;
            int status = read_answer(one);
            if (!status)
                continue;
            times[one->number].answered = last = now();
            answered++;
            accepted += status == 200;
            idle[idle_count++] = one;
        }
    }
    printf("%ld %ld %.6f\n", answered, accepted, (double)(last - begin) / (double)SECOND);
    for (long number = 1; number <= begun; number++)
        fprintf(file, "%ld %lld %lld\n", number, (long long)times[number].begun, (long long)times[number].answered);
    return fclose(file) != 0;
}
