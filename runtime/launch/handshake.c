/*
 * handshake.c -- turns the process that mpirun starts into a rank.
 *
 *     mpirun -n W /proc/LAUNCHER/exe --become-rank SOCKET BUNDLE ARGUMENTS
 *
 * mpirun starts the launcher's own program.  This process calls the launcher,
 * so that the launcher knows the process of every rank before anything of the
 * bundle has run.  It receives the launcher's standard output and error, which
 * therefore do not pass through mpirun (mpirun loses text that it cannot write,
 * and crashes where a reader has left).  Then it becomes BUNDLE/rank-NNNN, or
 * says why it cannot: a successful exec closes the socket.
 */
#include "runtime/comm/comm.h"
#include "runtime/launch/launch.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_failed = 3, HELLO_SECONDS = 2, EXIT_INFO_TRIES = 20 };
static const char become[] = "--become-rank";

/* ---- files of ranks ---- */

/* Where the last byte that the headers speak of ends; 0: not known. */
static uint64_t elf_bytes(int fd, const Elf64_Ehdr *header) {
  uint64_t end =
      header->e_shoff + (uint64_t)header->e_shentsize * header->e_shnum;
  for (int i = 0; i < header->e_phnum; i++) {
    Elf64_Phdr part;
    if (pread(fd, &part, sizeof part,
              (off_t)(header->e_phoff + (uint64_t)i * sizeof part)) !=
        (ssize_t)sizeof part)
      return header->e_phoff + (uint64_t)(i + 1) * sizeof part;
    if (part.p_offset + part.p_filesz > end)
      end = part.p_offset + part.p_filesz;
  }
  return end;
}

static Status check_content(int fd, const char *path, uint64_t bytes) {
  Elf64_Ehdr header = {0};
  ssize_t n = pread(fd, &header, sizeof header, 0);
  if (n < 0) return status_errno(errno, "cannot read '%s'", path);
  if (n == 0) return status_make(STATUS_unavailable, "'%s' is empty", path);
  if (n > 2 && memcmp(&header, "#!", 2) == 0) return STATUS_OK;
  if (memcmp(&header, ELFMAG, n < SELFMAG ? (size_t)n : SELFMAG) != 0)
    return status_make(STATUS_unavailable, "'%s' is not a program", path);
  uint64_t expected =
      n < (ssize_t)sizeof header ? sizeof header : elf_bytes(fd, &header);
  if (expected <= bytes) return STATUS_OK;
  return status_make(STATUS_unavailable,
                     "'%s' is truncated: it has %llu of at least %llu bytes",
                     path, (unsigned long long)bytes,
                     (unsigned long long)expected);
}

Status handshake_check_file(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0)
    return errno == ENOENT
               ? status_make(STATUS_unavailable, "'%s' is missing", path)
               : status_errno(errno, "'%s'", path);
  if (!S_ISREG(info.st_mode))
    return status_make(STATUS_unavailable, "'%s' is not a file", path);
  if (access(path, X_OK) != 0)
    return status_make(STATUS_unavailable,
                       "'%s' is not executable (chmod +x, or a file system "
                       "mounted noexec)",
                       path);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return STATUS_OK; /* what may not be read may still run */
  Status status = check_content(fd, path, (uint64_t)info.st_size);
  close(fd);
  return status;
}

/* ---- the process that mpirun starts ---- */

static socklen_t address_of(const char *name, struct sockaddr_un *out) {
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  size_t n = strlen(name);
  if (n > sizeof out->sun_path - 1) n = sizeof out->sun_path - 1;
  memcpy(out->sun_path + 1, name, n); /* abstract: no file remains */
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int call_launcher(const char *name, int32_t rank) {
  struct sockaddr_un address;
  socklen_t n = address_of(name, &address);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, (struct sockaddr *)&address, n) == 0 &&
      send(fd, &rank, sizeof rank, MSG_NOSIGNAL) == (ssize_t)sizeof rank)
    return fd;
  close(fd);
  return -1;
}

typedef union Control {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(2 * sizeof(int))];
} Control;

/* Takes over the launcher's standard output and error. */
static bool receive_streams(int fd) {
  char byte;
  Control control;
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof control};
  if (recvmsg(fd, &message, 0) != 1) return false;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(2 * sizeof(int)))
    return false;
  int streams[2];
  memcpy(streams, CMSG_DATA(header), sizeof streams);
  for (int i = 0; i < 2; i++) {
    dup2(streams[i], STDOUT_FILENO + i);
    if (streams[i] > STDERR_FILENO) close(streams[i]);
  }
  return true;
}

int handshake_become(int argc, char **argv) {
  if (argc < 4 || strcmp(argv[1], become) != 0) return -1;
  char path[BUNDLE_PATH + 16];
  FixedText text = fixed_text(path, sizeof path);
  int32_t rank = comm_place().rank;
  int fd = call_launcher(argv[2], rank);
  if (fd < 0 || !receive_streams(fd)) {
    fprintf(stderr, "error: rank %d finds no launcher\n", rank);
    return EXIT_failed;
  }
  fixed_printf(&text, "%s/rank-%04d", argv[3], rank);
  argv[3] = path;
  execv(path, argv + 3);
  int32_t error = errno;
  (void)!send(fd, &error, sizeof error, MSG_NOSIGNAL);
  return EXIT_failed;
}

/* ---- the side of the launcher ---- */

int handshake_listen(char name[HANDSHAKE_NAME]) {
  struct timespec now;
  struct sockaddr_un address;
  clock_gettime(CLOCK_MONOTONIC, &now);
  FixedText text = fixed_text(name, HANDSHAKE_NAME);
  fixed_printf(&text, "dnn-run-%d-%lld%09ld", (int)getpid(),
               (long long)now.tv_sec, now.tv_nsec);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  socklen_t n = address_of(name, &address);
  if (bind(fd, (struct sockaddr *)&address, n) == 0 &&
      listen(fd, SOMAXCONN) == 0)
    return fd;
  close(fd);
  return -1;
}

static bool send_streams(int fd) {
  static const int streams[] = {STDOUT_FILENO, STDERR_FILENO};
  char byte = 0;
  Control control = {.bytes = {0}};
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof streams);
  memcpy(CMSG_DATA(header), streams, sizeof streams);
  return sendmsg(fd, &message, MSG_NOSIGNAL) == 1;
}

/* The kernel says who calls, so that nobody else's process gets in. */
static bool answer_launcher(int fd, Caller *out) {
  struct ucred who;
  socklen_t size = sizeof who;
  struct timeval limit = {.tv_sec = HELLO_SECONDS};
  int32_t rank;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 ||
      who.uid != getuid() ||
      recv(fd, &rank, sizeof rank, 0) != (ssize_t)sizeof rank)
    return false;
  *out = (Caller){.rank = rank,
                  .process = (int)syscall(SYS_pidfd_open, who.pid, 0),
                  .socket = fd};
  return send_streams(fd);
}

bool handshake_accept(int listener, Caller *out) {
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) return false;
  *out = (Caller){.process = -1};
  if (answer_launcher(fd, out)) return true;
  close(fd);
  if (out->process >= 0) close(out->process);
  return false;
}

int handshake_result(int socket, int *out_error) {
  int32_t error;
  ssize_t n = recv(socket, &error, sizeof error, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  *out_error = n == (ssize_t)sizeof error ? error : 0;
  return 1;
}

/* ---- how a process ended that is not our child ---- */

/* The struct of <linux/pidfd.h> since Linux 6.15, which few systems have. */
typedef struct PidfdInfo {
  uint64_t mask, cgroup;
  uint32_t ids[11];
  int32_t exit_code;
} PidfdInfo;
enum { INFO_EXIT = 1 << 3 };

bool handshake_exit_status(int process, int *out_status) {
  for (int i = 0; i < EXIT_INFO_TRIES; i++) {
    PidfdInfo info = {.mask = INFO_EXIT};
    int result = ioctl(process, _IOWR(0xff, 11, PidfdInfo), &info);
    if (result == 0 && (info.mask & INFO_EXIT)) {
      *out_status = info.exit_code;
      return true;
    }
    if (result != 0 && errno != ESRCH) return false;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* be reaped */
  }
  return false;
}
