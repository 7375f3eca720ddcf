/*
 * main.c -- generates and checks random programs, and reduces those that fail.
 *
 *     random_programs [--seed S] [--count N] [--seconds T] [--dnnc PATH]
 *                     [--emit EVERY] [--out DIR] [--only CHECK] [FILE ...]
 *     random_programs --print SEED
 *
 * Program number i depends on the seed and i only.  Checks run in processes of
 * their own, so that a crash or a hang is a failure like any other.  With
 * --dnnc every EVERYth program (10) is also compiled and run.  A failing
 * program is shrunk and written to DIR with the message and the command that
 * repeats it.  Files are checked instead of random programs.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/random/checks.h"
#include "tests/random/program.h"

enum { MESSAGE = 4000, TRIALS = 400, REFUSED = 2 };

/* Checks of what dnnc does not do yet: neither good nor bad. */
static int n_refused;

typedef struct Settings {
  uint64_t seed;
  int count, emit_every;
  double seconds;
  const char *dnnc, *out, *only;
} Settings;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- one check in a process of its own ---- */

static _Noreturn void check_in_child(const Check *check, const char *text,
                                     const char *dnnc, int to) {
  alarm(check->compiles ? 400 : 20);
  dup2(to, 2); /* what an assertion says */
  Arena *arena = arena_create(memory_create(no_memory, NULL));
  const char *wrong = check->run(arena, text, dnnc);
  if (wrong == check_refused) _exit(REFUSED);
  if (wrong) dprintf(to, "%s", wrong);
  _exit(wrong != NULL);
}

/* True if it holds; else `message` says what is wrong. */
static bool holds(const Check *check, const char *text, const char *dnnc,
                  char message[MESSAGE]) {
  int ends[2], code, n = 0;
  ssize_t got;
  if (pipe(ends) != 0) abort();
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    check_in_child(check, text, dnnc, ends[1]);
  }
  close(ends[1]);
  char rest[512];
  while ((got = read(ends[0], n < MESSAGE - 1 ? message + n : rest,
                     n < MESSAGE - 1 ? (size_t)(MESSAGE - 1 - n)
                                     : sizeof rest)) > 0)
    n += n < MESSAGE - 1 ? (int)got : 0;
  message[n] = 0;
  close(ends[0]);
  waitpid(child, &code, 0);
  if (WIFSIGNALED(code))
    snprintf(message + n, (size_t)(MESSAGE - n), "\nkilled by signal %d",
             WTERMSIG(code));
  if (!WIFEXITED(code)) return false;
  n_refused += WEXITSTATUS(code) == REFUSED;
  return WEXITSTATUS(code) == 0 || WEXITSTATUS(code) == REFUSED;
}

/* ---- what failed ---- */

typedef struct Failure {
  Arena *arena;
  const Check *check;
  const char *dnnc;
  char kind[40]; /* begin of the message: shrinking stays with one fault */
} Failure;

/* The key that tells faults apart: the message without numbers and names. */
static void kind_of(const char *message, char out[40]) {
  int n = 0;
  for (; *message && n < 39 && *message != '\n'; message++)
    if (*message < '0' || *message > '9') out[n++] = *message;
  out[n] = 0;
}

static const Choices *retry(void *user, const IntList *given) {
  Failure *failure = user;
  Choices *choices = choices_replay(failure->arena, given);
  const char *text = program_make(choices);
  char message[MESSAGE], kind[40];
  if (holds(failure->check, text, failure->dnnc, message)) return NULL;
  kind_of(message, kind);
  return strcmp(kind, failure->kind) ? NULL : choices;
}

static void report(const Settings *settings, Arena *arena, const Check *check,
                   uint64_t seed, const Choices *choices, const char *message) {
  Failure failure = {.arena = arena, .check = check, .dnnc = settings->dnnc};
  kind_of(message, failure.kind);
  fprintf(stderr, "seed %llu: %s: %.300s\n", (unsigned long long)seed,
          check->name, message);
  const Choices *small = choices_shrink(
      arena, choices, check->compiles ? TRIALS / 8 : TRIALS, retry, &failure);
  Choices *again = choices_replay(arena, &small->made);
  const char *program = program_make(again);
  char last[MESSAGE];
  holds(check, program, settings->dnnc, last);
  const char *path = arena_printf(arena, "%s/%s-%llu.dnn", settings->out,
                                  check->name, (unsigned long long)seed);
  Text text = text_create(arena);
  text_printf(&text,
              "# seed %llu; repeat with:\n#   random_programs %s%s%s "
              "--only %s %s\n",
              (unsigned long long)seed, settings->dnnc ? "--dnnc " : "",
              settings->dnnc ? settings->dnnc : "", settings->dnnc ? " " : "",
              check->name, path);
  for (const char *at = last; *at;) {
    size_t n = strcspn(at, "\n");
    text_printf(&text, "# %.*s\n", (int)n, at);
    at += n + (at[n] == '\n');
  }
  text_add(&text, program);
  file_make_dirs(settings->out);
  file_replace(path, text_string(&text), text.n);
  fprintf(stderr, "written: %s\n%s\n", path, program);
}

/* ---- the run ---- */

static bool wanted(const Settings *settings, const Check *check, int index) {
  if (settings->only) return !strcmp(settings->only, check->name);
  return !check->compiles ||
         (settings->dnnc && index % settings->emit_every == 0);
}

static int check_program(const Settings *settings, int index) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  uint64_t seed = settings->seed + (uint64_t)index;
  Choices *choices = choices_random(arena, seed);
  const char *text = program_make(choices);
  char message[MESSAGE];
  int failed = 0;
  for (int i = 0; i < n_checks && !failed; i++) {
    if (!wanted(settings, &checks[i], index)) continue;
    if (holds(&checks[i], text, settings->dnnc, message)) continue;
    report(settings, arena, &checks[i], seed, choices, message);
    failed = 1;
  }
  memory_destroy(memory);
  return failed;
}

static int check_file(const Settings *settings, const char *path) {
  Arena *arena = arena_create(memory_create(no_memory, NULL));
  const char *text;
  size_t n;
  char message[MESSAGE];
  int failed = 0;
  if (file_read(arena, path, 1 << 20, &text, &n).code != STATUS_ok) return 1;
  for (int i = 0; i < n_checks; i++) {
    if (!wanted(settings, &checks[i], 0)) continue;
    bool ok = holds(&checks[i], text, settings->dnnc, message);
    printf("%s: %s\n%s", checks[i].name, ok ? "holds" : "FAILS",
           ok ? "" : message);
    failed |= !ok;
  }
  return failed;
}

static int print_program(uint64_t seed) {
  Arena *arena = arena_create(memory_create(no_memory, NULL));
  fputs(program_make(choices_random(arena, seed)), stdout);
  return 0;
}

int main(int argc, char **argv) {
  Settings settings = {
      .seed = 1, .count = 100, .emit_every = 10, .out = "failed"};
  int failed = 0, done = 0, i = 1;
  for (; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2) {
    const char *name = argv[i] + 2, *value = argv[i + 1];
    if (!strcmp(name, "print")) return print_program(strtoull(value, NULL, 10));
    if (!strcmp(name, "seed"))
      settings.seed = strtoull(value, NULL, 10);
    else if (!strcmp(name, "count"))
      settings.count = atoi(value);
    else if (!strcmp(name, "seconds"))
      settings.seconds = atof(value);
    else if (!strcmp(name, "emit"))
      settings.emit_every = atoi(value);
    else if (!strcmp(name, "dnnc"))
      settings.dnnc = value;
    else if (!strcmp(name, "out"))
      settings.out = value;
    else if (!strcmp(name, "only"))
      settings.only = value;
    else
      return 1;
  }
  char path[PATH_MAX]; /* programs are run in folders of their own */
  if (settings.dnnc && !realpath(settings.dnnc, path)) {
    perror(settings.dnnc);
    return 1;
  }
  if (settings.dnnc) settings.dnnc = path;
  if (i < argc) {
    for (; i < argc; i++) failed += check_file(&settings, argv[i]);
    return failed > 0;
  }
  double begin = now();
  for (; done < settings.count && failed < 10; done++) {
    if (settings.seconds > 0 && now() - begin > settings.seconds) break;
    failed += check_program(&settings, done);
  }
  printf("random_programs: seeds %llu to %llu, %d failed, "
         "%d checks not supported yet, %.0f s\n",
         (unsigned long long)settings.seed,
         (unsigned long long)settings.seed + (unsigned long long)done - 1,
         failed, n_refused, now() - begin);
  return failed > 0;
}
