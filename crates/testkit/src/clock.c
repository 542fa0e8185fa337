/* Replaces the wall clock of one process: see clock.rs, which compiles this.
 *
 * The file named by TESTKIT_CLOCK holds two integers, in microseconds: the offset to add to the
 * real time and, when it is not zero, the frozen time to show instead. Only the wall clock is
 * touched: timers and timeouts run on CLOCK_MONOTONIC and must keep running. System calls are made
 * directly, because the functions that usually make them are the ones replaced here. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct clock_file { int64_t offset_us; int64_t frozen_us; };
static volatile const struct clock_file *file;

/* Before main, and so before there are threads: no locking, no half-made state. */
__attribute__((constructor)) static void map_clock_file(void) {
  const char *path = getenv("TESTKIT_CLOCK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *map = fd < 0 ? MAP_FAILED : mmap(0, sizeof *file, PROT_READ, MAP_SHARED, fd, 0);
  /* A test that believes it controls the clock and does not would prove nothing. */
  if (map == MAP_FAILED) {
    static const char problem[] = "testkit: clock shim: cannot map the file in TESTKIT_CLOCK\n";
    ssize_t ignored = write(2, problem, sizeof problem - 1);
    (void)ignored;
    _exit(97);
  }
  file = map;
}

int clock_gettime(clockid_t id, struct timespec *time) {
  int result = syscall(SYS_clock_gettime, id, time);
  if (result != 0 || !file || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return result;
  int64_t now_us = file->frozen_us;
  if (now_us == 0) now_us = time->tv_sec * 1000000LL + time->tv_nsec / 1000 + file->offset_us;
  time->tv_sec = now_us / 1000000;
  time->tv_nsec = now_us % 1000000 * 1000;
  return 0;
}

int gettimeofday(struct timeval *restrict value, void *restrict zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  value->tv_sec = now.tv_sec;
  value->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds) *seconds = now.tv_sec;
  return now.tv_sec;
}
