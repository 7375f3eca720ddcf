/*
 * launch.c -- starts the ranks of a bundle and ensures that all of them end.
 *
 * mpirun kills its ranks half a second after a SIGTERM, which is too soon for a
 * checkpoint.  So it runs in a process group of its own; the launcher keeps
 * SIGTERM and Ctrl-C for itself and sends SIGUSR1, which mpirun forwards, and
 * on which ranks save and leave.  A second Ctrl-C ends everything at once.
 *
 * Ranks call the launcher before they execute their file (handshake.c) and tell
 * it when they start, have joined the others, hear nothing of one and end
 * (recorder.c); a process descriptor for each shows its death even if it said
 * nothing.  After the first loss the others have a moment to say where they
 * wait; then one message names the cause, and all are killed: graceful ends
 * hang when a rank is gone.  The start has a limit, because a rank that never
 * reaches MPI keeps all others waiting there.
 */
#include "runtime/launch/launch.h"

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/cpu/cpu.h"
#include "runtime/recorder/silence.h"
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
  EXIT_user = 1,
  EXIT_machine = 3,
  EXIT_interrupted = 130,
  EXIT_terminated = 143,
  GRACE_MS = 500,  /* for reports after a loss */
  JUDGE_MS = 500,  /* for more reports after one of silence */
  ENDED_MS = 3000, /* for the others, after a rank gave up */
  LEAVE_MS = 5000, /* for mpirun, after all ranks said that they end */
  KILL_MS = 300,   /* for mpirun to see that its ranks are dead */
  DEAD_MS = 1000,  /* for the last ranks to vanish */
  POLL_MS = 100,
  MOST_NAMED = 4,
  NO_CODE = -1
};

/* How far a rank has come, as far as we have heard. */
typedef enum Stage {
  STAGE_none,
  STAGE_called,   /* mpirun has started a process for it */
  STAGE_executed, /* that has become the file of the bundle */
  STAGE_started,  /* that is a program of ours */
  STAGE_joined    /* MPI has brought all together */
} Stage;

typedef struct Rank {
  int fd;     /* of the process; -1: not known or gone */
  int socket; /* until it has become a rank; -1 */
  int code;   /* it said so; NO_CODE */
  pid_t pid;  /* it said so; 0 */
  Stage stage;
  bool is_lost;
  const char *waits; /* where it was when another was lost; or NULL */
  int n_with, with[MOST_SILENCES]; /* the others of the collective it is in */
} Rank;

typedef struct Launch {
  const LaunchOptions *options;
  Arena *arena;
  pid_t child; /* mpirun, or the only rank */
  int alive[2], report[2], signals, listener;
  char listener_name[HANDSHAKE_NAME];
  Rank *ranks;
  struct pollfd *polled;   /* [3 + 2 ranks] */
  int64_t start_before_ms; /* 0: all have joined */
  char line[4096];         /* what was read of the reports */
  size_t n_line;
  int n_signals;      /* that asked to stop */
  int stop_code;      /* 130 or 143; 0 */
  int64_t kill_at_ms; /* 0: never */
  int lost;           /* the first lost rank; -1 */
  const char *loss;   /* how it was lost, until that is printed; or NULL */
  const char *save;   /* where rank 0 saves; or NULL */
  Silences silences;
  int64_t judge_at_ms; /* 0: nobody is silent */
  int n_kills;
  bool is_leaving; /* all have said that they end */
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
  threads_limit_spinning();
  setenv("DNN_TERMINAL", isatty(STDOUT_FILENO) ? "1" : "0", 1);
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

typedef VEC(char *) Words;

static void add_words(Arena *arena, Words *words, const char *const *from,
                      int n) {
  for (int i = 0; i < n; i++)
    vec_push(arena, words, arena_strdup(arena, from[i]));
}

/* mpirun -n W /proc/PID/exe --become-rank SOCKET DIR ARGS, see handshake.c. */
static void add_mpirun(Arena *arena, const Launch *launch, Words *words) {
  add_words(arena, words, mpirun_words, ARRAY_LENGTH(mpirun_words));
  for (int i = 0; *launch->scratch && i < ARRAY_LENGTH(scratch_words); i++) {
    const char *const scratch[] = {"--mca", scratch_words[i], launch->scratch};
    add_words(arena, words, scratch, ARRAY_LENGTH(scratch));
  }
  const char *const become[] = {
      "-n",
      arena_printf(arena, "%d", launch->options->ranks),
      arena_printf(arena, "/proc/%d/exe", (int)getpid()),
      "--become-rank",
      launch->listener_name,
      launch->options->bundle};
  add_words(arena, words, become, ARRAY_LENGTH(become));
}

static char **make_words(Arena *arena, const Launch *launch) {
  const LaunchOptions *options = launch->options;
  Words words = {0};
  if (options->ranks > 1)
    add_mpirun(arena, launch, &words);
  else
    vec_push(arena, &words,
             arena_printf(arena, "%s/rank-0000", options->bundle));
  add_words(arena, &words, options->arguments, options->n_arguments);
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
  signal(SIGPIPE, SIG_DFL);
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

/* A damaged file is found here, before any rank runs, with its cause. */
static Status check_files(Arena *arena, const LaunchOptions *options) {
  for (int i = 0; i < options->ranks; i++) {
    Status status = handshake_check_file(
        arena_printf(arena, "%s/rank-%04d", options->bundle, i));
    if (status.code != STATUS_ok)
      return status_make(status.code,
                         "cannot start rank %d: %s; build the bundle again", i,
                         status.message);
  }
  return STATUS_OK;
}

static Status start_mpirun(Launch *launch, char **words) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, NULL);
  launch->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (launch->signals < 0 || launch->listener < 0 ||
      pipe2(launch->alive, O_CLOEXEC) != 0 ||
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

/* A shorter limit replaces a longer one: several waits do not add up. */
static void kill_in(Launch *launch, int64_t ms) {
  int64_t at_ms = now_ms() + ms;
  if (launch->n_kills > 0) return;
  if (!launch->kill_at_ms || at_ms < launch->kill_at_ms)
    launch->kill_at_ms = at_ms;
}

/* First the ranks, upon which mpirun ends; if it does not, it is killed too: a
 * SIGTERM while its ranks die makes it crash, and its files are left in our
 * scratch folder. */
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

/* How a rank ended that said nothing. */
static const char *describe_end(const Launch *launch, int rank) {
  const Rank *from = &launch->ranks[rank];
  bool has_joined = from->stage == STAGE_joined;
  Text text = text_create(launch->arena);
  int status;
  if (!has_joined)
    text_printf(&text, "'%s/rank-%04d' ", launch->options->bundle, rank);
  if (!handshake_exit_status(from->fd, &status))
    text_add(&text, has_joined ? "it was killed or crashed" : "ended");
  else if (WIFSIGNALED(status))
    text_printf(&text, "%s killed by signal %d (%s)",
                has_joined ? "it was" : "was", WTERMSIG(status),
                strsignal(WTERMSIG(status)));
  else
    text_printf(&text, "%sended with exit code %d", has_joined ? "it " : "",
                WEXITSTATUS(status));
  if (!has_joined) text_add(&text, " before it joined the other ranks");
  return text_string(&text);
}

/* The message follows when the others have said where they are. */
static void lose_rank(Launch *launch, int rank, const char *loss) {
  if (launch->ranks[rank].is_lost || launch->kill_at_ms) return;
  launch->ranks[rank].is_lost = true;
  launch->lost = rank;
  launch->loss = loss;
  (void)!write(launch->alive[1], "?", 1);
  kill_in(launch, GRACE_MS);
}

/* ---- silence ---- */

static void hear_silence(Launch *launch, int by, int of) {
  if (of < 0 || of >= launch->options->ranks) return;
  silence_add(&launch->silences, by, of);
  if (!launch->judge_at_ms) launch->judge_at_ms = now_ms() + JUDGE_MS;
}

/* Its state is the first word after its name, which is in parentheses. */
static bool is_stopped(pid_t pid) {
  char path[64], data[512];
  if (pid <= 0) return false;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, data, sizeof data - 1) : 0;
  if (fd >= 0) close(fd);
  data[n > 0 ? n : 0] = '\0';
  const char *name_end = strrchr(data, ')');
  return name_end && strncmp(name_end, ") T", 3) == 0;
}

/* All ranks are on this machine, so that whoever lives is heard. */
static void judge_silence(Launch *launch) {
  char data[300];
  FixedText text = fixed_text(data, sizeof data);
  if (!launch->judge_at_ms || now_ms() < launch->judge_at_ms ||
      launch->kill_at_ms)
    return;
  Verdict verdict = silence_judge(&launch->silences, true);
  silence_describe(&text, &verdict);
  if (verdict.is_lost && is_stopped(launch->ranks[verdict.rank].pid))
    fixed_printf(&text, "; it is stopped");
  lose_rank(launch, verdict.rank, arena_strdup(launch->arena, data));
}

/* ---- who waited ---- */

static void hear_wait(Launch *launch, Rank *from, const char *line) {
  int n, length = 0, other;
  from->n_with = 0;
  if (sscanf(line, "%*d waits %d%n", &n, &length) != 1) return;
  line += length;
  for (int i = 0; i < n && i < MOST_SILENCES; i++) {
    if (sscanf(line, "%d%n", &other, &length) != 1) return;
    from->with[from->n_with++] = other;
    line += length;
  }
  from->waits = arena_strdup(launch->arena, line + strspn(line, " "));
}

static bool is_with(const Rank *rank, int lost) {
  for (int i = 0; i < rank->n_with; i++)
    if (rank->with[i] == lost) return true;
  return false;
}

/* One rank speaks for all: the lowest in a collective with the lost one. */
static void print_loss(Launch *launch) {
  const Rank *speaker = NULL;
  int n = 0;
  if (!launch->loss) return;
  for (int i = launch->options->ranks - 1; i >= 0; i--) {
    const Rank *rank = &launch->ranks[i];
    if (!rank->waits || i == launch->lost) continue;
    n++;
    if (!speaker || is_with(rank, launch->lost) ||
        !is_with(speaker, launch->lost))
      speaker = rank;
  }
  if (speaker && n > 1)
    message_print("note: %s; %d more rank%s\n", speaker->waits, n - 1,
                  n > 2 ? "s wait too" : " waits too");
  else if (speaker)
    message_print("note: %s\n", speaker->waits);
  message_print("error: %s\n", launch->loss);
  launch->loss = NULL;
}

/* ---- what ranks say ---- */

static void reach_stage(Launch *launch, int rank, Stage stage) {
  if (launch->ranks[rank].stage < stage) launch->ranks[rank].stage = stage;
  for (int i = 0; i < launch->options->ranks; i++)
    if (launch->ranks[i].stage < STAGE_joined) return;
  launch->start_before_ms = 0;
}

/* The rest of "RANK WORD REST". */
static const char *after_word(const char *line, const char *word) {
  line += strspn(line, "0123456789");
  return strncmp(line, word, strlen(word)) == 0 ? line + strlen(word) : NULL;
}

static void hear_line(Launch *launch, const char *line) {
  int rank, value;
  const char *text;
  if (sscanf(line, "%d", &rank) != 1 || rank < 0 ||
      rank >= launch->options->ranks)
    return;
  Rank *from = &launch->ranks[rank];
  if (sscanf(line, "%*d started %d", &value) == 1) {
    reach_stage(launch, rank, STAGE_started);
    from->pid = value;
    if (from->fd < 0) from->fd = (int)syscall(SYS_pidfd_open, value, 0);
  } else if (after_word(line, " joined")) {
    reach_stage(launch, rank, STAGE_joined);
  } else if (after_word(line, " left")) {
    from->code = EXIT_machine;
    kill_in(launch, 0);
  } else if (sscanf(line, "%*d silent %d", &value) == 1) {
    hear_silence(launch, rank, value);
  } else if ((text = after_word(line, " saves "))) {
    launch->save = arena_strdup(launch->arena, text);
  } else if (after_word(line, " waits ")) {
    hear_wait(launch, from, line);
  } else if (sscanf(line, "%*d ended %d", &value) == 1) {
    from->code = value;
    if (value == EXIT_machine) kill_in(launch, ENDED_MS);
  }
}

static void hear_reports(Launch *launch) {
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

/* Processes that mpirun has started, and what became of those before. */
static void hear_callers(Launch *launch) {
  Caller caller;
  int error;
  while (handshake_accept(launch->listener, &caller)) {
    bool is_ours = caller.rank >= 0 && caller.rank < launch->options->ranks &&
                   launch->ranks[caller.rank].stage == STAGE_none;
    if (!is_ours) {
      close(caller.socket);
      if (caller.process >= 0) close(caller.process);
      continue;
    }
    launch->ranks[caller.rank].fd = caller.process;
    launch->ranks[caller.rank].socket = caller.socket;
    reach_stage(launch, caller.rank, STAGE_called);
  }
  for (int i = 0; i < launch->options->ranks; i++) {
    Rank *rank = &launch->ranks[i];
    if (rank->socket < 0 || !handshake_result(rank->socket, &error)) continue;
    close(rank->socket);
    rank->socket = -1;
    if (error == 0) {
      reach_stage(launch, i, STAGE_executed);
      continue;
    }
    rank->is_lost = true;
    message_print("error: cannot start rank %d: '%s/rank-%04d': %s\n", i,
                  launch->options->bundle, i, strerror(error));
    kill_in(launch, 0);
  }
}

/* If several ranks have ended, mpirun has killed those that it sent a signal.
 */
static int rank_guilt(const Rank *rank) {
  int status;
  if (!handshake_exit_status(rank->fd, &status)) return 1;
  bool is_sent = WIFSIGNALED(status) &&
                 (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL);
  return is_sent ? 0 : 2;
}

static bool is_dead(const Rank *rank) {
  struct pollfd item = {.fd = rank->fd, .events = POLLIN};
  return rank->fd >= 0 && poll(&item, 1, 0) > 0;
}

/* The end of an only rank is known from waitpid. */
static void look_for_deaths(Launch *launch) {
  int worst = -1, most = -1, n_dead = 0;
  for (int i = 0; i < launch->options->ranks && launch->options->ranks > 1; i++)
    n_dead += is_dead(&launch->ranks[i]);
  if (n_dead == 0) return;
  hear_reports(launch); /* their last words */
  hear_callers(launch);
  for (int i = 0; i < launch->options->ranks; i++) {
    Rank *rank = &launch->ranks[i];
    if (!is_dead(rank) || rank->code != NO_CODE) continue;
    int own = n_dead > 1 ? rank_guilt(rank) : 0;
    if (own > most) worst = i;
    if (own > most) most = own;
  }
  if (worst >= 0 && !launch->kill_at_ms)
    lose_rank(launch, worst,
              arena_printf(launch->arena, "lost rank %d: %s", worst,
                           describe_end(launch, worst)));
  for (int i = 0; i < launch->options->ranks; i++) {
    if (!is_dead(&launch->ranks[i])) continue;
    close(launch->ranks[i].fd);
    launch->ranks[i].fd = -1;
  }
}

/* ---- a start that takes too long ---- */

static const char *describe_late_ranks(const Launch *launch, Stage stage) {
  static const char *const whys[] = {
      "has not been started by mpirun", "has not been executed",
      "runs, but never reached MPI", "is blocked in MPI", ""};
  int n = 0, first = 0;
  for (int i = launch->options->ranks - 1; i >= 0; i--) {
    if (launch->ranks[i].stage != stage) continue;
    first = i;
    n++;
  }
  const char *more =
      n > 1 ? arena_printf(launch->arena, " (and %d more)", n - 1) : "";
  return arena_printf(launch->arena, "rank %d, '%s/rank-%04d', %s%s", first,
                      launch->options->bundle, first, whys[stage], more);
}

/* The ranks that hold up the others are those that came least far. */
static void check_start(Launch *launch) {
  if (!launch->start_before_ms || now_ms() < launch->start_before_ms ||
      launch->kill_at_ms)
    return;
  Stage least = STAGE_joined;
  for (int i = 0; i < launch->options->ranks; i++)
    if (launch->ranks[i].stage < least) least = launch->ranks[i].stage;
  message_print("error: the ranks did not start within %lld s: %s\n"
                "help: --start-timeout SECONDS raises the limit\n",
                (long long)launch->options->start_timeout_s,
                describe_late_ranks(launch, least));
  for (int i = 0; i < launch->options->ranks; i++)
    if (launch->ranks[i].stage == least) launch->ranks[i].is_lost = true;
  kill_in(launch, 0);
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
      message_print("\nstopping after this step%s%s\n",
                    launch->options->save ? ", with a checkpoint" : "",
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

/* Until something happens, or for a tenth of a second. */
static void wait_a_little(Launch *launch) {
  int n = 0;
  struct pollfd *items = launch->polled;
  items[n++] = (struct pollfd){.fd = launch->signals, .events = POLLIN};
  items[n++] = (struct pollfd){.fd = launch->report[0], .events = POLLIN};
  items[n++] = (struct pollfd){.fd = launch->listener, .events = POLLIN};
  for (int i = 0; i < launch->options->ranks; i++) {
    const Rank *rank = &launch->ranks[i];
    items[n++] = (struct pollfd){.fd = rank->fd, .events = POLLIN};
    items[n++] = (struct pollfd){.fd = rank->socket, .events = POLLIN};
  }
  poll(items, (nfds_t)n, POLL_MS);
}

static bool have_all_said(const Launch *launch) {
  int n = 0;
  for (int i = 0; i < launch->options->ranks; i++)
    n += launch->ranks[i].code != NO_CODE;
  return n == launch->options->ranks;
}

/* Ranks that keep nothing end at once when we are stopped, and mpirun may take
 * most of a second to end after them.  So it is killed once all have said that
 * they end.  Else it gets a limit: within MPI_Finalize a rank sends no
 * heartbeats, so nobody hears that one of them is stopped there. */
static void hurry(Launch *launch) {
  const LaunchOptions *options = launch->options;
  bool is_stopped = launch->n_signals > 0 && options->keeps_nothing;
  if (options->ranks == 1 || !have_all_said(launch)) return;
  if (!is_stopped && !launch->kill_at_ms) launch->is_leaving = true;
  kill_in(launch, is_stopped ? 0 : LEAVE_MS);
}

/* Their work is done, and the exit code is what they said. */
static void print_late_end(const Launch *launch) {
  if (launch->is_leaving && launch->n_kills == 0)
    message_print("warning: the ranks have not ended %d s after their work, so "
                  "they are killed; nothing is lost\n",
                  LEAVE_MS / 1000);
}

static int wait_for_child(Launch *launch) {
  for (;;) {
    int status;
    pid_t pid = waitpid(launch->child, &status, WNOHANG);
    if (pid == launch->child || (pid < 0 && errno != EINTR))
      return pid < 0 ? 0 : status;
    hurry(launch);
    int64_t now = now_ms();
    if (launch->kill_at_ms && now >= launch->kill_at_ms) {
      print_loss(launch);
      print_late_end(launch);
      kill_now(launch);
    }
    check_start(launch);
    judge_silence(launch);
    wait_a_little(launch);
    hear_signals(launch);
    hear_callers(launch);
    hear_reports(launch);
    look_for_deaths(launch);
  }
}

/* The exit code that most ranks gave is the cause: a mistake of the user is
 * found by all, a lost rank by its neighbours.  Once all have said theirs,
 * their work is done, and how mpirun ends does not matter: some crash on the
 * way out. */
static int exit_code(const Launch *launch, int status) {
  int said = NO_CODE;
  bool is_lost = false, is_done = have_all_said(launch);
  for (int i = 0; i < launch->options->ranks; i++) {
    is_lost = is_lost || launch->ranks[i].is_lost;
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
                  is_done ? "warning" : "error", WTERMSIG(status),
                  strsignal(WTERMSIG(status)));
  if (launch->options->ranks > 1 && said == NO_CODE && WIFEXITED(status) &&
      WEXITSTATUS(status) != 0 && !launch->n_kills)
    message_print("error: mpirun ended with exit code %d\n",
                  WEXITSTATUS(status));
  int code = is_done             ? said
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
  const int fds[] = {launch->alive[0],  launch->alive[1], launch->report[0],
                     launch->report[1], launch->signals,  launch->listener};
  for (int i = 0; i < ARRAY_LENGTH(fds); i++)
    if (fds[i] >= 0) close(fds[i]);
  for (int i = 0; i < launch->options->ranks; i++) {
    if (launch->ranks[i].fd >= 0) close(launch->ranks[i].fd);
    if (launch->ranks[i].socket >= 0) close(launch->ranks[i].socket);
  }
}

static void on_memory_exhausted(void *user) {
  (void)user;
  fprintf(stderr, "error: no memory left\n");
  _exit(EXIT_machine);
}

static void note_shared_cores(const LaunchOptions *options) {
  int cores = count_cores();
  if (options->is_quiet || options->ranks <= cores) return;
  message_print("note: %d ranks share %d core%s, so they take turns\n",
                options->ranks, cores, cores == 1 ? "" : "s");
}

/* mpirun and its ranks, once their files are found to be right. */
static Status start_all(Launch *launch) {
  const LaunchOptions *options = launch->options;
  TRY(check_files(launch->arena, options));
  TRY(bundle_check(launch->arena, options));
  if (options->save) TRY(saver_check_free(options->save));
  note_shared_cores(options);
  if (options->ranks > 1) {
    scratch_create(launch->scratch);
    launch->start_before_ms = now_ms() + options->start_timeout_s * 1000;
  }
  launch->listener = handshake_listen(launch->listener_name);
  return start_mpirun(launch, make_words(launch->arena, launch));
}

static int run_launch(Launch *launch) {
  sigset_t before;
  int n = launch->options->ranks, code = EXIT_machine;
  launch->ranks = ARENA_ARRAY(launch->arena, Rank, n);
  for (int i = 0; i < n; i++)
    launch->ranks[i] = (Rank){.fd = -1, .socket = -1, .code = NO_CODE};
  launch->polled = ARENA_ARRAY(launch->arena, struct pollfd, 3 + 2 * n);
  sigprocmask(SIG_SETMASK, NULL, &before);
  Status status = start_all(launch);
  if (status.code != STATUS_ok) {
    message_print("error: %s\n", status.message);
    if (status.code == STATUS_invalid) code = EXIT_user;
  } else {
    int child_status = wait_for_child(launch);
    hear_callers(launch);
    hear_reports(launch);
    look_for_deaths(launch);
    bury_ranks(launch);
    print_loss(launch);
    if (launch->save && launch->ranks[0].code == NO_CODE &&
        launch->ranks[0].pid > 0)
      saver_clear_after(launch->save, (int)launch->ranks[0].pid);
    code = exit_code(launch, child_status);
  }
  close_all(launch);
  scratch_remove(launch->scratch);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return code;
}

int launch_ranks(const LaunchOptions *options) {
  if (options->ranks < 1 || options->ranks > MOST_LAUNCHED) {
    fprintf(stderr, "error: cannot start %d ranks\n", options->ranks);
    return EXIT_machine;
  }
  Memory *memory = memory_create(on_memory_exhausted, NULL);
  if (!memory) on_memory_exhausted(NULL);
  Launch launch = {.options = options,
                   .arena = arena_create(memory),
                   .lost = -1,
                   .alive = {-1, -1},
                   .report = {-1, -1},
                   .signals = -1,
                   .listener = -1};
  /* The reader of our messages may end first; the ranks must still be ended. */
  void (*on_pipe)(int) = signal(SIGPIPE, SIG_IGN);
  int code = run_launch(&launch);
  signal(SIGPIPE, on_pipe);
  memory_destroy(memory);
  return code;
}
