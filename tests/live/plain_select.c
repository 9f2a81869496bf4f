/*
 * select() without libfaketime. The postmaster of PostgreSQL 15 forks from a signal handler while it waits in select(),
 * and libfaketime's own select() switches it off for as long as it waits: those children, our worker among them, would
 * see the real time for all their lives. Loaded before libfaketime.
 */
#define _GNU_SOURCE
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int select(int count, fd_set *read, fd_set *write, fd_set *except, struct timeval *timeout)
{
    struct timespec wait;

    if (timeout != NULL) {
        wait.tv_sec = timeout->tv_sec;
        wait.tv_nsec = timeout->tv_usec * 1000;
    }
    return syscall(SYS_pselect6, count, read, write, except, timeout == NULL ? NULL : &wait, NULL);
}
