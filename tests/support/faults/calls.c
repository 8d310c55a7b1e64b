// Preloaded into a program under test: system calls on the files of one folder are counted, and one of them, or each
// from there on, goes wrong. What it does stands in the environment, which injector.py writes:
//
//     FAULT_UNDER   the folder, absolute and without links
//     FAULT_CALLS   names of calls, each followed by a comma: "write,fsync,rename,"
//     FAULT_AT      number of the first call that goes wrong, from 0; -1: none
//     FAULT_EACH    1: each call from there on
//     FAULT_KIND    "kill": SIGKILL before the call; "killed after": after it; "torn": SIGKILL after half of a write;
//                   "short": half of a write or read; "delay": FAULT_NUMBER ms before it; "error": errno FAULT_NUMBER
//     FAULT_LOG     file that gets a line a call: number, name and path
//
// A forked child that calls fault_begin counts anew.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static atomic_long counted;

void fault_begin(void);
void fault_begin(void) { counted = 0; }

// Looked up on first use: other preloaded libraries may call before our constructors have run.
#define REAL(name)               \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static const char* setting(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

static int chosen(const char* call, const char* path) {
  const char* under = setting("FAULT_UNDER");
  const size_t length = strlen(under);
  if (length == 0 || strncmp(path, under, length) != 0 || (path[length] != '/' && path[length] != '\0')) return 0;
  char name[64];
  snprintf(name, sizeof name, "%s,", call);
  const char* calls = setting("FAULT_CALLS");
  for (const char* at = calls; (at = strstr(at, name)) != NULL; at++) {
    if (at == calls || at[-1] == ',') return 1;
  }
  return 0;
}

static void note(long number, const char* call, const char* path) {
  const char* log = setting("FAULT_LOG");
  if (*log == '\0') return;
  char line[PATH_MAX + 64];
  const int length = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
  REAL(write);
  const int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0 || real(fd, line, (size_t)length) != length) abort();
  close(fd);
}

enum Fault { NONE, KILL, KILL_AFTER, TORN, SHORT, DELAY, ERROR };

static enum Fault fault_of(const char* call, const char* path) {
  if (!chosen(call, path)) return NONE;
  const long number = atomic_fetch_add(&counted, 1);
  note(number, call, path);
  const long at = atol(setting("FAULT_AT"));
  if (at < 0 || number < at || (number > at && *setting("FAULT_EACH") != '1')) return NONE;
  const char* kind = setting("FAULT_KIND");
  if (strcmp(kind, "kill") == 0) return KILL;
  if (strcmp(kind, "killed after") == 0) return KILL_AFTER;
  if (strcmp(kind, "torn") == 0) return TORN;
  if (strcmp(kind, "short") == 0) return SHORT;
  if (strcmp(kind, "delay") == 0) return DELAY;
  if (strcmp(kind, "error") == 0) return ERROR;
  abort();
}

static const char* path_of(int fd, char* path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length > 0 ? length : 0] = '\0';
  return path;
}

static const char* path_at(int folder, const char* name, char* path) {
  if (name[0] == '/') return name;
  char base[PATH_MAX];
  if (folder != AT_FDCWD) {
    path_of(folder, base);
  } else if (getcwd(base, sizeof base) == NULL) {
    return "";
  }
  if (snprintf(path, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) return "";
  return path;
}

// Before a call; 1 where it fails instead of being made, with errno set.
static int before(enum Fault fault) {
  if (fault == KILL) raise(SIGKILL);
  if (fault == DELAY) {
    const long ms = atol(setting("FAULT_NUMBER"));
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
  }
  if (fault != ERROR) return 0;
  errno = atoi(setting("FAULT_NUMBER"));
  return 1;
}

static void after(enum Fault fault) {
  if (fault == KILL_AFTER || fault == TORN) raise(SIGKILL);
}

static size_t halved(enum Fault fault, size_t size) { return fault == TORN || fault == SHORT ? (size + 1) / 2 : size; }

// A call on an open file: TYPE name(int fd, ...).
#define ON_FILE(result_type, name, parameters, size_argument, ...)          \
  result_type name parameters {                                             \
    REAL(name);                                                             \
    char path[PATH_MAX];                                                    \
    const enum Fault fault = fault_of(base_name(#name), path_of(fd, path)); \
    size_argument;                                                          \
    if (before(fault)) return -1;                                           \
    const result_type result = real(__VA_ARGS__);                           \
    after(fault);                                                           \
    return result;                                                          \
  }

// "pwrite64" counts as "pwrite".
static const char* base_name(const char* call) {
  static const char* const large[] = {"pread64", "pwrite64", "open64", "openat", "openat64", "ftruncate64"};
  static const char* const plain[] = {"pread", "pwrite", "open", "open", "open", "ftruncate"};
  for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
    if (strcmp(call, large[i]) == 0) return plain[i];
  }
  return call;
}

ON_FILE(ssize_t, write, (int fd, const void* data, size_t size), size = halved(fault, size), fd, data, size)
ON_FILE(ssize_t, pwrite, (int fd, const void* data, size_t size, off_t at), size = halved(fault, size), fd, data, size,
        at)
ON_FILE(ssize_t, pwrite64, (int fd, const void* data, size_t size, off64_t at), size = halved(fault, size), fd, data,
        size, at)
ON_FILE(ssize_t, read, (int fd, void* data, size_t size), size = halved(fault, size), fd, data, size)
ON_FILE(ssize_t, pread, (int fd, void* data, size_t size, off_t at), size = halved(fault, size), fd, data, size, at)
ON_FILE(ssize_t, pread64, (int fd, void* data, size_t size, off64_t at), size = halved(fault, size), fd, data, size, at)
ON_FILE(int, fsync, (int fd), (void)0, fd)
ON_FILE(int, fdatasync, (int fd), (void)0, fd)
ON_FILE(int, ftruncate, (int fd, off_t size), (void)0, fd, size)
ON_FILE(int, ftruncate64, (int fd, off64_t size), (void)0, fd, size)

// A call on a name.
#define ON_NAME(call, folder, name)                                                  \
  char buffer[PATH_MAX];                                                             \
  const enum Fault fault = fault_of(base_name(call), path_at(folder, name, buffer)); \
  if (before(fault)) return -1

int rename(const char* from, const char* to) {
  REAL(rename);
  ON_NAME("rename", AT_FDCWD, to);
  const int result = real(from, to);
  after(fault);
  return result;
}

int unlink(const char* name) {
  REAL(unlink);
  ON_NAME("unlink", AT_FDCWD, name);
  const int result = real(name);
  after(fault);
  return result;
}

int rmdir(const char* name) {
  REAL(rmdir);
  ON_NAME("rmdir", AT_FDCWD, name);
  const int result = real(name);
  after(fault);
  return result;
}

int mkdir(const char* name, mode_t mode) {
  REAL(mkdir);
  ON_NAME("mkdir", AT_FDCWD, name);
  const int result = real(name, mode);
  after(fault);
  return result;
}

#define OPENING(call, folder, parameters, ...)         \
  int call parameters {                                \
    REAL(call);                                        \
    mode_t mode = 0;                                   \
    if (flags & (O_CREAT | __O_TMPFILE)) {             \
      va_list rest;                                    \
      va_start(rest, flags);                           \
      mode = va_arg(rest, mode_t);                     \
      va_end(rest);                                    \
    }                                                  \
    ON_NAME(#call, folder, name);                      \
    const int result = real(__VA_ARGS__, flags, mode); \
    after(fault);                                      \
    return result;                                     \
  }

OPENING(open, AT_FDCWD, (const char* name, int flags, ...), name)
OPENING(open64, AT_FDCWD, (const char* name, int flags, ...), name)
OPENING(openat, folder, (int folder, const char* name, int flags, ...), folder, name)
OPENING(openat64, folder, (int folder, const char* name, int flags, ...), folder, name)
