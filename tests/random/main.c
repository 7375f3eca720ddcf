/*
 * main.c -- generates and checks random programs, and reduces those that fail.
 *
 *     random_programs [--seed S] [--count N] [--seconds T] [--dnnc PATH]
 *                     [--emit EVERY] [--out DIR] [--only CHECK] [FILE ...]
 *     random_programs --plans N [--seed S] [--out DIR]
 *     random_programs --stages N [--seed S] [--out DIR]
 *     random_programs --print SEED
 *
 * Program number i depends on the seed and i only.  Checks run in processes of
 * their own, so that a crash or a hang is a failure like any other.  With
 * --dnnc every EVERYth program (10) is also compiled and run.  A failing
 * program is shrunk and written to DIR with the message and the command that
 * repeats it.  Files are checked instead of random programs.  --plans plays N
 * random programs under random plans (plans.c) and prints what it has seen; one
 * of 1,000 or more fails where that is not enough (plan_table.c).  --stages
 * does so with plans of several stages; --seed goes on after another run.
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
#include "tests/random/plans.h"
#include "tests/random/program.h"

/* A child ends with 0: the check holds, 1: it fails, or an answer that is
 * neither good nor bad: ANSWERS and its index in `answers`. */
enum { MESSAGE = 16000, TRIALS = 120, ANSWERS = 10, MARK = '\f' };

/* So many plans must show every kind of line and of collective. */
enum { FULL_RUN = 1000 };

static const char *const answers[] = {
    check_refused, plan_refused, plan_not_compared, plan_identity, plan_noise};

/* Checks of what dnnc does not do yet. */
static int n_refused;

typedef struct Settings {
  uint64_t seed;
  int count, emit_every;
  double seconds;
  const char *dnnc, *out, *only;
  bool is_planned, has_stages;
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
  alarm(check->compiles ? 400 : 60);
  dup2(to, 2); /* what an assertion says */
  Arena *arena = arena_create(memory_create(no_memory, NULL));
  const char *wrong = check->run(arena, text, dnnc);
  for (int i = 0; i < ARRAY_LENGTH(answers); i++)
    if (wrong == answers[i]) _exit(ANSWERS + i);
  if (wrong) dprintf(to, "%c%s", MARK, wrong);
  _exit(wrong != NULL);
}

/* NULL: it holds; one of `answers`; or what is wrong, in `message`. */
static const char *answer_of(const Check *check, const char *text,
                             const char *dnnc, char message[MESSAGE]) {
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
  if (!WIFEXITED(code) || WEXITSTATUS(code) == 1) return message;
  if (WEXITSTATUS(code) == 0) return NULL;
  int i = WEXITSTATUS(code) - ANSWERS;
  if (i < 0 || i >= ARRAY_LENGTH(answers)) return message;
  bool is_silent = answers[i] == plan_refused && !strstr(message, "error: ");
  n_refused += answers[i] == check_refused;
  /* The order of messages is the compiler's, not the plan's. */
  bool may_hang = answers[i] == plan_refused &&
                  strstr(message, "it is not sure that all ranks");
  if (is_silent) snprintf(message, MESSAGE, "refused without a message");
  return is_silent || may_hang ? message : answers[i];
}

static bool holds(const Check *check, const char *text, const char *dnnc,
                  char message[MESSAGE]) {
  return answer_of(check, text, dnnc, message) != message;
}

/* ---- what failed ---- */

static const char *make_text(const Settings *settings, Choices *choices,
                             int *out_lines) {
  return settings->is_planned
             ? planned_make(choices, settings->has_stages, out_lines)
             : program_make(choices);
}

typedef struct Failure {
  const Settings *settings;
  Arena *arena;
  const Check *check;
  const char *dnnc;
  char kind[40]; /* begin of the message: shrinking stays with one fault */
} Failure;

/* Behind warnings: what the check says, or an assertion. */
static const char *essence_of(const char *message) {
  const char *mark = strrchr(message, MARK);
  const char *fault = strstr(message, "\nthis is a fault of dnnc");
  if (mark) return mark + 1;
  while (fault && fault > message && fault[-1] != '\n') fault--;
  return fault ? fault : message;
}

/* The key that tells faults apart: the message without numbers and names. */
static void kind_of(const char *message, char out[40]) {
  int n = 0;
  message = essence_of(message);
  for (; *message && n < 39 && *message != '\n'; message++)
    if (*message < '0' || *message > '9') out[n++] = *message;
  out[n] = 0;
}

static const Choices *retry(void *user, const IntList *given) {
  Failure *failure = user;
  Choices *choices = choices_replay(failure->arena, given);
  const char *text = make_text(failure->settings, choices, NULL);
  char message[MESSAGE], kind[40];
  if (holds(failure->check, text, failure->dnnc, message)) return NULL;
  kind_of(message, kind);
  return strcmp(kind, failure->kind) ? NULL : choices;
}

static void report(const Settings *settings, Arena *arena, const Check *check,
                   uint64_t seed, const Choices *choices, const char *message) {
  Failure failure = {.settings = settings,
                     .arena = arena,
                     .check = check,
                     .dnnc = settings->dnnc};
  kind_of(message, failure.kind);
  fprintf(stderr, "seed %llu: %s: %.300s\n", (unsigned long long)seed,
          check->name, essence_of(message));
  const Choices *small = choices_shrink(
      arena, choices, check->compiles ? TRIALS / 8 : TRIALS, retry, &failure);
  Choices *again = choices_replay(arena, &small->made);
  const char *program = make_text(settings, again, NULL);
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
  for (const char *at = essence_of(last); *at;) {
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
  if (settings->is_planned || check->run == check_plan)
    return settings->is_planned && check->run == check_plan;
  return !check->compiles ||
         (settings->dnnc && index % settings->emit_every == 0);
}

static int check_program(const Settings *settings, int index) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  uint64_t seed = settings->seed + (uint64_t)index;
  Choices *choices = choices_random(arena, seed);
  int failed = 0, lines[N_LINES] = {0};
  const char *text = make_text(settings, choices, lines);
  char message[MESSAGE];
  for (int i = 0; i < n_checks && !failed; i++) {
    if (!wanted(settings, &checks[i], index)) continue;
    const char *answer = answer_of(&checks[i], text, settings->dnnc, message);
    if (settings->is_planned)
      plan_table_add(plan_table(), seed, answer, lines, message);
    if (answer != message) continue;
    report(settings, arena, &checks[i], seed, choices, message);
    failed = 1;
  }
  memory_destroy(memory);
  return failed;
}

static int check_file(const Settings *settings, const char *path) {
  static Memory *memory; /* of the process */
  if (!memory) memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  const char *text;
  size_t n;
  char message[MESSAGE];
  int failed = 0;
  if (file_read(arena, path, 1 << 20, &text, &n).code != STATUS_ok) return 1;
  Settings own = *settings;
  own.is_planned = planned_mesh(text) != NULL;
  settings = &own;
  for (int i = 0; i < n_checks; i++) {
    if (!wanted(settings, &checks[i], 0)) continue;
    const char *answer = answer_of(&checks[i], text, settings->dnnc, message);
    bool ok = answer != message;
    printf("%s: %s\n%s", checks[i].name,
           !ok      ? "FAILS"
           : answer ? answer
                    : "holds",
           ok && answer != plan_refused ? "" : message);
    failed |= !ok;
  }
  return failed;
}

static int print_program(const Settings *settings, uint64_t seed) {
  Arena *arena = arena_create(memory_create(no_memory, NULL));
  fputs(make_text(settings, choices_random(arena, seed), NULL), stdout);
  return 0;
}

int main(int argc, char **argv) {
  Settings settings = {
      .seed = 1, .count = 100, .emit_every = 10, .out = "failed"};
  int failed = 0, done = 0, i = 1;
  for (; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2) {
    const char *name = argv[i] + 2, *value = argv[i + 1];
    if (!strcmp(name, "print"))
      return print_program(&settings, strtoull(value, NULL, 10));
    if (!strcmp(name, "seed"))
      settings.seed = strtoull(value, NULL, 10);
    else if (!strcmp(name, "count"))
      settings.count = atoi(value);
    else if (!strcmp(name, "plans") || !strcmp(name, "stages")) {
      settings.count = atoi(value);
      settings.is_planned = true;
      settings.has_stages = !strcmp(name, "stages");
    } else if (!strcmp(name, "seconds"))
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
  if (!settings.is_planned) return failed > 0;
  plan_table_print(plan_table());
  bool is_full = done >= FULL_RUN && failed == 0 && !settings.has_stages;
  return failed > 0 || (is_full && !plan_table_is_complete(plan_table()));
}
