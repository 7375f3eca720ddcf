/*
 * bench_iopddl.c -- solves problems of the contest on sharding inside of
 * operators (ASPLOS 2025) by the engine of the planner.
 *
 *     bench_iopddl FILE[.gz] [--time S] [--cpu S] [--nodes N]
 *                  [--solution OUT] [--without PART]... [--no-limit]
 *                  [--trace] [--json] [--duals OUT] [--threads N]
 *     bench_iopddl FILE[.gz] --check DUALS
 *
 * It stops S seconds after its start, or after S seconds of processor time,
 * reading included, or after N nodes; the same N gives the same result
 * everywhere, with any number of threads (all cores by default).  OUT is a JSON
 * list of the number of each node's strategy.  --duals writes why no strategies
 * cost less than a bound, which is that of the result without what branches
 * prove; --check adds that up and searches nothing.  --no-limit takes no notice
 * of memory.  --trace prints the time, the cost and the bound where the cost
 * or, by more than a hundredth, the bound has become better.  --json prints
 * `cost` (null: none was found), `bound`, `seconds`, `nodes`, `outcome`.
 *
 * Exit status 0: values were found, or the duals hold; 1: the problem has none,
 * none were found, or the duals do not hold; 2: a file or the command is wrong.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "benchmarks/iopddl.h"
#include "planner/recheck/duals.h"
#include "support/file.h"
#include "support/text.h"

typedef struct Run {
  const char *file, *solution, *duals, *check;
  double begin, seconds; /* seconds: 0, no limit */
  double cpu;            /* the same, of processor time */
  int threads;
  bool no_limit, trace, json;
  FactorBudget budget;
  FactorCost cost, bound; /* printed last */
} Run;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_now(void) {
  return (double)clock() / (double)CLOCKS_PER_SEC;
}

static bool is_over(void *user) {
  const Run *run = user;
  if (run->cpu > 0 && cpu_now() >= run->cpu) return true;
  return run->seconds > 0 && now() - run->begin >= run->seconds;
}

/* ---- threads ---- */

typedef struct Items {
  void (*work)(void *of, int i);
  void *of;
  int n;
  atomic_int next;
} Items;

static void *do_items(void *user) {
  Items *items = user;
  for (int i; (i = atomic_fetch_add(&items->next, 1)) < items->n;)
    items->work(items->of, i);
  return NULL;
}

/* Items take much longer than a thread to start.  Where none starts, this one
 * does all. */
static void side_by_side(void *user, int n, void (*work)(void *of, int i),
                         void *of) {
  enum { MOST_THREADS = 64 };
  const Run *run = user;
  Items items = {.work = work, .of = of, .n = n};
  pthread_t threads[MOST_THREADS];
  int n_threads = 0;
  while (n_threads < MOST_THREADS && n_threads + 1 < n &&
         n_threads + 1 < run->threads &&
         pthread_create(&threads[n_threads], NULL, do_items, &items) == 0)
    n_threads++;
  do_items(&items);
  for (int i = 0; i < n_threads; i++) pthread_join(threads[i], NULL);
}

/* ---- messages ---- */

static void print_better(void *user, FactorCost cost, FactorCost bound) {
  Run *run = user;
  if (cost == run->cost && bound - run->bound <= run->bound / 100) return;
  run->cost = cost;
  run->bound = bound;
  double seconds = run->cpu > 0 ? cpu_now() : now() - run->begin;
  fprintf(stderr, "%7.2f s", seconds);
  if (cost < FACTOR_FORBIDDEN) fprintf(stderr, "  cost %" PRId64, cost);
  fprintf(stderr, "  bound %" PRId64 "\n", bound);
}

static _Noreturn void no_memory(void *user) {
  (void)user;
  fprintf(stderr, "bench_iopddl: out of memory\n");
  exit(2);
}

static _Noreturn void refuse(const char *text, const char *what) {
  fprintf(stderr, "bench_iopddl: %s '%s'\n", text, what);
  exit(2);
}

static double number_of(const char *text) {
  char *end;
  double number = strtod(text, &end);
  if (*text == 0 || *end || !(number > 0 && number < 1e15))
    refuse("a positive number must stand in place of", text);
  return number;
}

static int threads_of(const char *text) {
  double number = number_of(text);
  if (number > 1000 || number != (int)number)
    refuse("a number of threads up to 1000 must stand in place of", text);
  return (int)number;
}

static void leave_out(Run *run, const char *name) {
  for (int part = 0; part < N_FACTOR_PARTS; part++)
    if (!strcmp(factor_part_name(part), name)) {
      run->budget.without[part] = true;
      return;
    }
  fprintf(stderr, "bench_iopddl: parts are");
  for (int part = 0; part < N_FACTOR_PARTS; part++)
    fprintf(stderr, " %s", factor_part_name(part));
  fprintf(stderr, "\n");
  refuse("there is no part", name);
}

/* ---- the command ---- */

/* Reads an option that has a value. */
static void read_value(Run *run, const char *option, const char *value) {
  if (!value) refuse("a value must follow", option);
  if (!strcmp(option, "--time"))
    run->seconds = number_of(value);
  else if (!strcmp(option, "--cpu"))
    run->cpu = number_of(value);
  else if (!strcmp(option, "--nodes"))
    run->budget.nodes = (int64_t)number_of(value);
  else if (!strcmp(option, "--threads"))
    run->threads = threads_of(value);
  else if (!strcmp(option, "--solution"))
    run->solution = value;
  else if (!strcmp(option, "--duals"))
    run->duals = value;
  else if (!strcmp(option, "--check"))
    run->check = value;
  else if (!strcmp(option, "--without"))
    leave_out(run, value);
  else
    refuse("there is no option", option);
}

static void read_options(Run *run, char **argv) {
  for (argv++; *argv; argv++) {
    if (!strcmp(*argv, "--json")) {
      run->json = true;
    } else if (!strcmp(*argv, "--trace")) {
      run->trace = true;
    } else if (!strcmp(*argv, "--no-limit")) {
      run->no_limit = true;
    } else if (**argv == '-') {
      read_value(run, argv[0], argv[1]);
      argv++;
    } else if (run->file) {
      refuse("one file is solved at a time, not also", *argv);
    } else {
      run->file = *argv;
    }
  }
  if (!run->file) refuse("a file is missing in", "FILE[.gz] --time S");
}

static Status write_solution(Arena *arena, const char *path, const int *values,
                             int n) {
  Text text = text_create(arena);
  for (int i = 0; i < n; i++)
    text_printf(&text, "%s%d", i ? ", " : "[", values[i]);
  text_printf(&text, "%s]\n", n ? "" : "[");
  const char *bytes = text_string(&text);
  return file_replace(path, bytes, strlen(bytes));
}

static Status write_duals(Arena *arena, const char *path,
                          const FactorDuals *duals) {
  Text text = text_create(arena);
  if (!duals)
    return status_make(STATUS_invalid, "%s: sums saturate: no duals", path);
  factor_duals_print(&text, duals);
  return file_replace(path, text_string(&text), text.n);
}

/* Adds up duals from a file, and says whether they hold. */
static Status check_duals(Arena *arena, const char *path,
                          const FactorProblem *problem, bool *out_holds) {
  FactorDuals *duals;
  const char *text;
  size_t n;
  TRY(file_read(arena, path, (size_t)1 << 32, &text, &n));
  TRY(recheck_duals_read(arena, path, text, n, &duals));
  DualsCheck check = recheck_duals(arena, problem, duals);
  *out_holds = !check.fault;
  if (check.fault)
    printf("refused: step %d: %s\n", check.step, check.fault);
  else
    printf("holds: bound %" PRId64 "\n", duals->bound);
  return STATUS_OK;
}

static void print_result(const Run *run, const FactorResult *result) {
  static const char *const outcomes[] = {"proved", "found", "none", "unknown"};
  char cost[32] = "null", bound[32] = "null";
  if (result->values) snprintf(cost, sizeof cost, "%" PRId64, result->cost);
  if (result->outcome != FACTOR_none)
    snprintf(bound, sizeof bound, "%" PRId64, result->bound);
  double seconds = now() - run->begin;
  if (run->json)
    printf(
        "{\"cost\": %s, \"bound\": %s, \"seconds\": %.3f, \"nodes\": %" PRId64
        ", \"outcome\": \"%s\", \"variables\": %d, \"pairs\": %d, "
        "\"rows\": %d}\n",
        cost, bound, seconds, result->nodes, outcomes[result->outcome],
        result->n_variables, result->n_pairs, result->n_rows);
  else
    printf("cost %s  bound %s  %.2f s  %" PRId64 " nodes  %s\n", cost, bound,
           seconds, result->nodes, outcomes[result->outcome]);
}

static Status solve(Arena *arena, Run *run, const FactorProblem *problem, int n,
                    bool *out_found) {
  run->budget.stop = is_over;
  run->budget.better = run->trace ? print_better : NULL;
  run->budget.side_by_side = run->threads > 1 ? side_by_side : NULL;
  run->budget.user = run;
  run->budget.has_duals = run->duals != NULL;
  FactorResult result = factor_solve(arena, problem, &run->budget);
  *out_found = result.values != NULL;
  if (result.values && run->solution)
    TRY(write_solution(arena, run->solution, result.values, n));
  if (run->duals) TRY(write_duals(arena, run->duals, result.duals));
  print_result(run, &result);
  return STATUS_OK;
}

int main(int argc, char **argv) {
  (void)argc;
  Run run = {.begin = now(), .cost = FACTOR_FORBIDDEN};
  run.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
  read_options(&run, argv);
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  FactorProblem *problem;
  int n;
  bool is_good = false;
  Status status = iopddl_read(arena, run.file, &problem, &n);
  if (status.code == STATUS_ok && run.no_limit)
    factor_limit(problem, INT64_MAX);
  if (status.code == STATUS_ok)
    status = run.check ? check_duals(arena, run.check, problem, &is_good)
                       : solve(arena, &run, problem, n, &is_good);
  if (status.code != STATUS_ok) fprintf(stderr, "%s\n", status.message);
  memory_destroy(memory);
  return status.code != STATUS_ok ? 2 : is_good ? 0 : 1;
}
