/*
 * launch.c -- starts the ranks of a bundle and sees to it that all of them end.
 *
 * mpirun kills its ranks half a second after a SIGTERM, which is too soon for a
 * checkpoint.  So it runs in a process group of its own; the launcher keeps
 * SIGTERM and Ctrl-C for itself and sends SIGUSR1, which mpirun passes on, and
 * on which ranks save and leave.  A second Ctrl-C ends everything at once.
 *
 * Ranks tell the launcher when they start, whom they have lost and when they
 * end (watch.c); a process descriptor for each shows its death even if it said
 * nothing.  After the first loss the others get a second to report, then all
 * are killed: graceful ends hang when a rank is gone.
 */
#include "runtime/launch.h"

#include "support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  MAX_RANKS = 4096,
  EXIT_machine = 3,
  EXIT_interrupted = 130,
  EXIT_terminated = 143,
  GRACE_MS = 500,  /* for reports after a loss */
  ENDED_MS = 3000, /* for the others, after a rank gave up */
  KILL_MS = 300,   /* for mpirun to see that its ranks are dead */
  DEAD_MS = 1000,  /* for the last ranks to vanish */
  NO_CODE = -1
};

typedef struct Rank {
  int fd;   /* of the process; -1: not known or gone */
  int code; /* it said so; NO_CODE */
  bool has_started, is_lost;
} Rank;

typedef struct Launch {
  const LaunchOptions *options;
  pid_t child; /* mpirun, or the only rank */
  int alive[2], report[2], signals;
  Rank *ranks;
  char line[4096]; /* what was read of the reports */
  size_t n_line;
  int n_signals;      /* that asked to stop */
  int stop_code;      /* 130 or 143; 0 */
  int64_t kill_at_ms; /* 0: never */
  int n_kills;
  char scratch[64];
} Launch;

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- starting ---- */

/* Cores that this process may use. */
static int count_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int n = CPU_COUNT(&set);
  return n > 0 ? n : 1;
}

static void set_number(const char *name, long value) {
  char text[32];
  snprintf(text, sizeof text, "%ld", value);
  setenv(name, text, 0);
}

static void set_environment(const Launch *launch) {
  char host[256] = "", text[400];
  int ranks = launch->options->ranks, threads = count_cores() / ranks;
  gethostname(host, sizeof host - 1);
  snprintf(text, sizeof text, "%s:%d:%d:%d", host, (int)getppid(),
           launch->alive[0], launch->report[1]);
  setenv("DNN_LAUNCHER", text, 1);
  set_number("OMP_NUM_THREADS", threads > 0 ? threads : 1);
  /* Threads that spin at a barrier take the cores of other ranks, and of other
   * programs: then a short spin, about as long as a kernel, loses least (on two
   * busy cores a step took 20 times as long with the default). */
  if (ranks > 1) setenv("OMP_WAIT_POLICY", "passive", 0);
  setenv("GOMP_SPINCOUNT", "20000", 0);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  if (ranks == 1) {
    setenv("DNN_RANK", "0", 1);
    setenv("DNN_WORLD", "1", 1);
  }
}

static const char *const mpirun_words[] = {"mpirun",
                                           "-q",
                                           "--oversubscribe",
                                           "--bind-to",
                                           "none",
                                           "--mca",
                                           "mpi_yield_when_idle",
                                           "1",
                                           "--mca",
                                           "btl",
                                           "self,vader",
                                           "--mca",
                                           "orte_abort_print_stack",
                                           "0"};

/* Both Open MPI's files and the shared memory of its ranks. */
static const char *const scratch_words[] = {"orte_tmpdir_base",
                                            "btl_vader_backing_directory"};

/* mpirun -n 1 DIR/rank-0000 ARGS : -n 1 DIR/rank-0001 ARGS ... */
static char **make_words(Arena *arena, const Launch *launch) {
  const LaunchOptions *options = launch->options;
  VEC(char *) words = {0};
  if (options->ranks > 1)
    for (int i = 0; i < ARRAY_LENGTH(mpirun_words); i++)
      vec_push(arena, &words, arena_strdup(arena, mpirun_words[i]));
  for (int i = 0; *launch->scratch && i < ARRAY_LENGTH(scratch_words); i++) {
    vec_push(arena, &words, arena_strdup(arena, "--mca"));
    vec_push(arena, &words, arena_strdup(arena, scratch_words[i]));
    vec_push(arena, &words, arena_strdup(arena, launch->scratch));
  }
  for (int rank = 0; rank < options->ranks; rank++) {
    if (rank > 0) vec_push(arena, &words, arena_strdup(arena, ":"));
    if (options->ranks > 1) {
      vec_push(arena, &words, arena_strdup(arena, "-n"));
      vec_push(arena, &words, arena_strdup(arena, "1"));
    }
    vec_push(arena, &words,
             arena_printf(arena, "%s/rank-%04d", options->bundle, rank));
    for (int i = 0; i < options->n_arguments; i++)
      vec_push(arena, &words, arena_strdup(arena, options->arguments[i]));
  }
  vec_push(arena, &words, NULL);
  return words.data;
}

_Noreturn static void become_child(const Launch *launch, char **words) {
  sigset_t none;
  setpgid(0, 0);
  /* mpirun cleans up on SIGTERM; a rank has nothing to clean. */
  prctl(PR_SET_PDEATHSIG, launch->options->ranks > 1 ? SIGTERM : SIGKILL);
  set_environment(launch);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  execvp(words[0], words);
  if (errno == ENOENT && launch->options->ranks > 1)
    fprintf(stderr, "error: no 'mpirun': several ranks need Open MPI (apt-get "
                    "install openmpi-bin)\n");
  else
    message_print("error: cannot start '%s': %s\n", words[0], strerror(errno));
  _exit(EXIT_machine);
}

static Status start(Launch *launch, char **words) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, NULL);
  launch->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (launch->signals < 0 || pipe2(launch->alive, O_CLOEXEC) != 0 ||
      pipe2(launch->report, O_CLOEXEC | O_NONBLOCK) != 0)
    return status_errno(errno, "cannot start the ranks");
  fflush(NULL);
  launch->child = fork();
  if (launch->child < 0) return status_errno(errno, "cannot start the ranks");
  if (launch->child == 0) become_child(launch, words);
  return STATUS_OK;
}

/* ---- ending ---- */

static void signal_process(const Rank *rank, int number) {
  if (rank->fd >= 0) syscall(SYS_pidfd_send_signal, rank->fd, number, NULL, 0);
}

static void kill_ranks(Launch *launch) {
  for (int i = 0; i < launch->options->ranks; i++)
    signal_process(&launch->ranks[i], SIGKILL);
}

static void kill_in(Launch *launch, int64_t ms) {
  if (!launch->kill_at_ms) launch->kill_at_ms = now_ms() + ms;
}

/* First the ranks, upon which mpirun ends; if it does not, it is killed too:
 * a SIGTERM while its ranks die makes it crash, and what it leaves behind lies
 * in our scratch folder. */
static void kill_now(Launch *launch) {
  kill_ranks(launch);
  if (launch->options->ranks == 1 || launch->n_kills > 0)
    kill(-launch->child, SIGKILL);
  launch->n_kills++;
  launch->kill_at_ms = now_ms() + KILL_MS;
}

/* So that nobody finds a rank of ours alive when we have ended. */
static void bury_ranks(Launch *launch) {
  int64_t until = now_ms() + DEAD_MS;
  kill_ranks(launch);
  for (int i = 0; i < launch->options->ranks; i++) {
    struct pollfd item = {.fd = launch->ranks[i].fd, .events = POLLIN};
    int64_t left = until - now_ms();
    if (item.fd >= 0) poll(&item, 1, left > 0 ? (int)left : 0);
  }
}

static void lose(Launch *launch, int rank, const char *why, int64_t grace_ms) {
  if (launch->ranks[rank].is_lost || launch->kill_at_ms) return;
  launch->ranks[rank].is_lost = true;
  message_print("error: lost rank %d: %s\n", rank, why);
  kill_in(launch, grace_ms);
}

/* ---- what ranks say ---- */

static void hear_line(Launch *launch, const char *line) {
  int rank, value;
  if (sscanf(line, "%d", &rank) != 1 || rank < 0 ||
      rank >= launch->options->ranks)
    return;
  Rank *from = &launch->ranks[rank];
  if (sscanf(line, "%*d started %d", &value) == 1) {
    from->has_started = true;
    if (from->fd < 0) from->fd = (int)syscall(SYS_pidfd_open, value, 0);
  } else if (sscanf(line, "%*d lost %d", &value) == 1) {
    if (value >= 0 && value < launch->options->ranks)
      lose(launch, value, "it has gone silent", 0);
  } else if (sscanf(line, "%*d ended %d", &value) == 1) {
    from->code = value;
    if (value == EXIT_machine) kill_in(launch, ENDED_MS);
  }
}

static void hear(Launch *launch) {
  for (;;) {
    ssize_t n = read(launch->report[0], launch->line + launch->n_line,
                     sizeof launch->line - 1 - launch->n_line);
    if (n <= 0) return;
    launch->n_line += (size_t)n;
    launch->line[launch->n_line] = '\0';
    char *begin = launch->line;
    for (char *end; (end = strchr(begin, '\n')); begin = end + 1) {
      *end = '\0';
      hear_line(launch, begin);
    }
    launch->n_line -= (size_t)(begin - launch->line);
    memmove(launch->line, begin, launch->n_line);
    if (launch->n_line == sizeof launch->line - 1) launch->n_line = 0;
  }
}

/* The end of an only rank is known from waitpid. */
static void look_for_deaths(Launch *launch) {
  if (launch->options->ranks == 1) return;
  for (int i = 0; i < launch->options->ranks; i++) {
    Rank *rank = &launch->ranks[i];
    struct pollfd item = {.fd = rank->fd, .events = POLLIN};
    if (rank->fd < 0 || poll(&item, 1, 0) <= 0) continue;
    close(rank->fd);
    rank->fd = -1;
    hear(launch); /* its last words */
    if (rank->code == NO_CODE)
      lose(launch, i, "it was killed or crashed", GRACE_MS);
  }
}

/* ---- signals to us ---- */

static void on_signal(Launch *launch, int number) {
  if (number == SIGCHLD) return;
  if (number == SIGUSR1) {
    kill(launch->child, SIGUSR1);
    return;
  }
  launch->n_signals++;
  if (launch->n_signals == 1) {
    launch->stop_code = number == SIGTERM ? EXIT_terminated : EXIT_interrupted;
    if (!launch->options->keeps_nothing)
      message_print("\nstopping after this step, with a checkpoint%s\n",
                    number == SIGINT ? "; again: at once" : "");
    else
      kill_in(launch, GRACE_MS);
    kill(launch->child, SIGUSR1);
  } else if (launch->n_signals == 2) {
    kill_now(launch);
  }
}

static void hear_signals(Launch *launch) {
  struct signalfd_siginfo info;
  while (read(launch->signals, &info, sizeof info) == (ssize_t)sizeof info)
    on_signal(launch, (int)info.ssi_signo);
}

/* ---- until the end ---- */

static int wait_for_child(Launch *launch) {
  for (;;) {
    int status;
    pid_t pid = waitpid(launch->child, &status, WNOHANG);
    if (pid == launch->child || (pid < 0 && errno != EINTR))
      return pid < 0 ? 0 : status;
    int64_t now = now_ms();
    if (launch->kill_at_ms && now >= launch->kill_at_ms) kill_now(launch);
    struct pollfd items[2] = {{.fd = launch->signals, .events = POLLIN},
                              {.fd = launch->report[0], .events = POLLIN}};
    poll(items, 2, 100);
    hear_signals(launch);
    hear(launch);
    look_for_deaths(launch);
  }
}

/* The code that most ranks gave is the cause: a mistake of the user is found by
 * all, a lost rank by its neighbours.  Once all have said theirs, their work is
 * done, and how mpirun ends does not matter: some crash on the way out. */
static int exit_code(const Launch *launch, int status) {
  int said = NO_CODE;
  bool is_lost = false, have_all_said = true;
  for (int i = 0; i < launch->options->ranks; i++) {
    is_lost = is_lost || launch->ranks[i].is_lost;
    have_all_said = have_all_said && launch->ranks[i].code != NO_CODE;
    if (launch->ranks[i].code > said) said = launch->ranks[i].code;
  }
  if (launch->n_signals > 1) return launch->stop_code;
  if (is_lost) return EXIT_machine;
  if (launch->options->ranks == 1 && WIFSIGNALED(status)) {
    /* A reader that left early, as head does, is no failure to talk about. */
    if (WTERMSIG(status) != SIGPIPE)
      message_print("error: lost rank 0: killed by signal %d (%s)\n",
                    WTERMSIG(status), strsignal(WTERMSIG(status)));
    return EXIT_machine;
  }
  if (WIFSIGNALED(status) && !launch->n_kills)
    message_print("%s: mpirun was killed by signal %d (%s)\n",
                  have_all_said ? "warning" : "error", WTERMSIG(status),
                  strsignal(WTERMSIG(status)));
  int code = have_all_said       ? said
             : WIFEXITED(status) ? WEXITSTATUS(status)
                                 : EXIT_machine;
  if (said > 0) code = said;
  bool is_stopped = code == 0 || code == EXIT_terminated;
  if (is_stopped && launch->stop_code) return launch->stop_code;
  bool is_known = code == 0 || code == 1 || code == 2 || code == 3 ||
                  code == 4 || code == 130 || code == 143;
  return is_known ? code : EXIT_machine;
}

static void close_all(Launch *launch) {
  const int fds[] = {launch->alive[0], launch->alive[1], launch->report[0],
                     launch->report[1], launch->signals};
  for (int i = 0; i < ARRAY_LENGTH(fds); i++)
    if (fds[i] >= 0) close(fds[i]);
  for (int i = 0; i < launch->options->ranks; i++)
    if (launch->ranks[i].fd >= 0) close(launch->ranks[i].fd);
}

static void exhausted(void *user) {
  (void)user;
  fprintf(stderr, "error: no memory left\n");
  _exit(EXIT_machine);
}

static int run(Launch *launch, Arena *arena) {
  sigset_t before;
  int n = launch->options->ranks;
  launch->ranks = ARENA_ARRAY(arena, Rank, n);
  for (int i = 0; i < n; i++)
    launch->ranks[i] = (Rank){.fd = -1, .code = NO_CODE};
  sigprocmask(SIG_SETMASK, NULL, &before);
  if (n > 1) scratch_create(launch->scratch);
  Status status = start(launch, make_words(arena, launch));
  int code = EXIT_machine;
  if (status.code != STATUS_ok) {
    message_print("error: %s\n", status.message);
  } else {
    int child_status = wait_for_child(launch);
    hear(launch);
    look_for_deaths(launch);
    bury_ranks(launch);
    code = exit_code(launch, child_status);
  }
  close_all(launch);
  scratch_remove(launch->scratch);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return code;
}

int launch_ranks(const LaunchOptions *options) {
  if (options->ranks < 1 || options->ranks > MAX_RANKS) {
    fprintf(stderr, "error: cannot start %d ranks\n", options->ranks);
    return EXIT_machine;
  }
  Memory *memory = memory_create(exhausted, NULL);
  if (!memory) exhausted(NULL);
  Launch launch = {
      .options = options, .alive = {-1, -1}, .report = {-1, -1}, .signals = -1};
  int code = run(&launch, arena_create(memory));
  memory_destroy(memory);
  return code;
}
