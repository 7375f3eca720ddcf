/*
 * main.c -- compares the price of random legal plans from tables with that of
 * the programs.
 *
 *     plan_prices [--first I] [--count N] [--seed S] [--model FILE]
 *     plan_prices --show NUMBER [--seed S]
 *
 * Plan NUMBER depends on the seed and the number alone, and is one of model
 * NUMBER modulo 12.  Each is checked in a process of its own.  --show prints a
 * plan and all that differs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/prices/prices.h"

/* A plan takes a second at most on an idle machine, but for one in a thousand,
 * of whose pins the compiler tries each without the others. */
enum { MOST_SECONDS = 600 };

typedef struct Settings {
  uint64_t seed;
  int64_t first, count, show;
  const char *model;
} Settings;

typedef struct Totals {
  int64_t n, refused, crashed, faulty;
  int64_t axes, zero, lines; /* plans that have them */
  int64_t products, attention, bytes, transfers, kernels, launches, equal;
  int64_t lookups, entries;
  int64_t all_products, by_strategy, edges[3]; /* by EdgeAnswer */
  double worst_kernels, worst_part, worst_launches;
  int64_t worst;
  int64_t above; /* plans whose live bytes are above the packed ones */
  double below;  /* sum of how far they are below */
  double worst_below;
} Totals;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

/* The check in a process of its own, whose messages nobody reads; false: it
 * crashed, and *out_code is what waitpid says. */
static bool check_in_child(const PricedPlan *plan, PriceCheck *out,
                           int *out_code) {
  int ends[2];
  if (pipe(ends) != 0) abort();
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    alarm(MOST_SECONDS);
    if (!freopen("/dev/null", "w", stderr)) _exit(1);
    PriceCheck check = check_price(plan, NULL);
    _exit(write(ends[1], &check, sizeof check) != sizeof check);
  }
  close(ends[1]);
  bool is_read = read(ends[0], out, sizeof *out) == sizeof *out;
  close(ends[0]);
  waitpid(child, out_code, 0);
  return is_read;
}

/* ---- one plan ---- */

static void add_plan(Totals *t, const PricedPlan *plan) {
  const int *lines = plan->lines;
  t->n++;
  t->axes += plan->n_axes > 1;
  t->zero += lines[LINE_zero1] + lines[LINE_zero2] + lines[LINE_zero3] > 0;
  t->lines += lines[LINE_operator] > 0;
}

static bool is_within(double difference) {
  return difference <= 0.01;
}

static bool is_price_equal(const PriceCheck *check) {
  return check->are_products_equal && check->is_attention_equal &&
         check->are_bytes_equal && check->are_transfers_equal &&
         is_within(check->kernels) && is_within(check->part) &&
         is_within(check->launches);
}

static void add_check(Totals *t, const PriceCheck *check, int64_t number) {
  t->products += check->are_products_equal;
  t->attention += check->is_attention_equal;
  t->bytes += check->are_bytes_equal;
  t->transfers += check->are_transfers_equal;
  t->kernels += is_within(check->kernels) && is_within(check->part);
  t->launches += is_within(check->launches);
  t->equal += is_price_equal(check);
  t->entries += check->n_entries;
  t->all_products += check->products;
  t->by_strategy += check->by_strategy;
  t->edges[check->edges]++;
  t->lookups += check->n_lookups;
  double below = 1 - (double)check->live / (double)check->packed;
  t->above += check->live > check->packed;
  t->below += below;
  if (below > t->worst_below) t->worst_below = below;
  if (check->kernels > t->worst_kernels) t->worst_kernels = check->kernels;
  if (check->launches > t->worst_launches) t->worst_launches = check->launches;
  if (check->part > t->worst_part) {
    t->worst_part = check->part;
    t->worst = number;
  }
}

static const PricedModel *model_of(const Settings *settings, int64_t number) {
  for (int i = 0; settings->model && i < n_priced_models; i++)
    if (!strcmp(priced_models[i].file, settings->model))
      return &priced_models[i];
  return &priced_models[number % n_priced_models];
}

/* The plan of a failure, and the command that shows all that differs. */
static void print_failure(const Settings *settings, int64_t number,
                          const PricedPlan *plan, const char *what) {
  printf("plan %lld of %s for %s: %s\n", (long long)number, plan->model->file,
         plan->target, what);
  printf("repeat with: plan_prices --show %lld --seed %llu\n%s\n",
         (long long)number, (unsigned long long)settings->seed, plan->text);
}

static const char *what_differs(const PriceCheck *check) {
  if (check->answer == PRICE_faulty) return "one side alone takes it";
  if (!check->are_products_equal) return "products differ";
  if (!check->is_attention_equal) return "attention differs";
  if (!check->are_bytes_equal || !check->are_transfers_equal)
    return "transfers differ";
  if (!is_price_equal(check)) return "kernels differ";
  if (check->live > check->packed) return "live bytes are above the packed";
  return check->edges == EDGES_differ ? "reshardings differ" : NULL;
}

/* The first attempt that partition takes. */
static void check_number(const Settings *settings, int64_t number, Totals *t) {
  enum { MOST_ATTEMPTS = 50 };
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  const PricedModel *model = model_of(settings, number);
  PriceCheck check = {.answer = PRICE_refused};
  for (int i = 0; i < MOST_ATTEMPTS && check.answer == PRICE_refused; i++) {
    PricedPlan plan = priced_plan(arena, model, settings->seed, number, i);
    int code;
    if (!check_in_child(&plan, &check, &code)) {
      t->crashed++;
      print_failure(settings, number, &plan,
                    arena_printf(arena, "crashed (%d)", code));
      break;
    }
    t->refused += check.answer == PRICE_refused;
    if (check.answer == PRICE_refused) continue;
    add_plan(t, &plan);
    t->faulty += check.answer == PRICE_faulty;
    if (check.answer == PRICE_compared) add_check(t, &check, number);
    const char *what = what_differs(&check);
    if (what) print_failure(settings, number, &plan, what);
  }
  memory_destroy(memory);
}

static int show_number(const Settings *settings) {
  enum { MOST_ATTEMPTS = 50 };
  Arena *arena = arena_create(memory_create(no_memory, NULL));
  const PricedModel *model = model_of(settings, settings->show);
  for (int i = 0; i < MOST_ATTEMPTS; i++) {
    Text out = text_create(arena);
    PricedPlan plan =
        priced_plan(arena, model, settings->seed, settings->show, i);
    PriceCheck check = check_price(&plan, &out);
    if (check.answer == PRICE_refused) continue;
    printf("# models/%s.dnn --target %s %s=%lld %s\n%s%s", model->file,
           plan.target, model->batch, (long long)plan.samples, model->sizes,
           plan.text, text_string(&out));
    return !is_price_equal(&check);
  }
  return 1;
}

/* ---- the run ---- */

static void print_totals(const Totals *t) {
  printf("%lld plans (%lld attempts were refused), of them with two axes or "
         "more %lld, with ZeRO %lld, with operator lines %lld\n",
         (long long)t->n, (long long)t->refused, (long long)t->axes,
         (long long)t->zero, (long long)t->lines);
  printf("equal term by term: %lld\n", (long long)t->equal);
  printf("  products %lld, attention %lld, bytes sent %lld, transfers %lld\n",
         (long long)t->products, (long long)t->attention, (long long)t->bytes,
         (long long)t->transfers);
  printf("  kernels within 1 %%: bytes %lld, launches %lld\n",
         (long long)t->kernels, (long long)t->launches);
  printf(
      "worst kernels: %.2f %% of all bytes, %.2f %% of a term's (plan %lld), "
      "%.2f %% of launches\n",
      100 * t->worst_kernels, 100 * t->worst_part, (long long)t->worst,
      100 * t->worst_launches);
  printf("live bytes: above the packed peak %lld times, below by %.2f %% on "
         "average, %.2f %% at most\n",
         (long long)t->above, 100 * t->below / (t->n > 0 ? (double)t->n : 1),
         100 * t->worst_below);
  printf("%lld of %lld products are placed by a strategy of their operator\n",
         (long long)t->by_strategy, (long long)t->all_products);
  printf("reshardings one by one send what collectives send in %lld of %lld "
         "plans\n",
         (long long)t->edges[EDGES_equal],
         (long long)(t->edges[EDGES_equal] + t->edges[EDGES_differ]));
  printf("%lld look-ups in %lld entries; %lld crashed, %lld taken by one side "
         "alone\n",
         (long long)t->lookups, (long long)t->entries, (long long)t->crashed,
         (long long)t->faulty);
}

int main(int argc, char **argv) {
  Settings settings = {.seed = 1, .count = 120, .show = -1};
  Totals totals = {0};
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *value = argv[i + 1];
    if (!strcmp(argv[i], "--count"))
      settings.count = atoll(value);
    else if (!strcmp(argv[i], "--first"))
      settings.first = atoll(value);
    else if (!strcmp(argv[i], "--seed"))
      settings.seed = strtoull(value, NULL, 10);
    else if (!strcmp(argv[i], "--model"))
      settings.model = value;
    else if (!strcmp(argv[i], "--show"))
      settings.show = atoll(value);
    else
      return 2;
  }
  if (settings.show >= 0) return show_number(&settings);
  for (int64_t i = 0; i < settings.count; i++)
    check_number(&settings, settings.first + i, &totals);
  print_totals(&totals);
  return totals.equal < settings.count || totals.above > 0 ||
         totals.edges[EDGES_differ] > 0 ||
         totals.by_strategy < totals.all_products;
}
