/*
 * bench_units.c -- compares the loads of units and edges, from which the search
 * and its bound add up a plan, with the programs of random assignments.
 *
 *     bench_units [--plans N] [--from SEED] [--state FILE] [--model NAME]
 *     bench_units --show SEED
 *
 * A plan depends on its seed alone; the model is number SEED modulo the number
 * of models, unless --model says which.  With --state a run goes on after the
 * last plan of the file.  Partition may place a unit otherwise than was drawn;
 * then the program's own assignment is compared, if there is one: the plan is
 * described.  It prints, for each model, the plans that are legal, those of
 * them that are described, and as they were drawn, those whose products and
 * attention are exact, the mean distance of what kernels take, and how often
 *
 *     live bytes are above the packed arena,
 *     a mean of loads is above the simulated step, of plans that are described,
 *     the bound of all plans with the mesh, settings and memory is above it.
 *
 * and, which proves nothing, a mean of the drawn assignment of another plan.
 * Exit status 1: one of the first three happens, attention differs, or
 * partition refuses half of the plans.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/assigned/assigned.h"

typedef struct Settings {
  AssignedOptions of;
  int64_t from, show; /* show: or -1 */
} Settings;

/* A plan, as it is kept in a file. */
typedef struct Row {
  long long seed, live, packed, mean, bound, step, forward[2], backward[2];
  int model, is_legal, products, other_products, attention, other_attention;
  int other_units; /* -1: no assignment says how the program is placed */
} Row;

enum { MOST_MODELS = 32 };

/* Plans that prove a sum wrong, and the worst of them. */
typedef struct Above {
  int n;
  double most;
  long long worst; /* seed */
} Above;

typedef struct Totals {
  int n, legal, described, as_drawn, exact_products, exact_attention;
  double kernels; /* sum of distances */
  Above live, mean, bound;
  Above drawn; /* means of plans that are not described */
} Totals;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

static Program *program_of(int model) {
  static Program *known[MOST_MODELS];
  if (!known[model])
    known[model] = assigned_load(memory_create(no_memory, NULL),
                                 &assigned_subjects[model]);
  if (known[model]) return known[model];
  fprintf(stderr, "bench_units: cannot load '%s'\n",
          assigned_subjects[model].name);
  exit(2);
}

static int model_of(const Settings *settings, int64_t seed) {
  for (int i = 0; settings->of.model && i < n_assigned_subjects; i++)
    if (!strcmp(assigned_subjects[i].name, settings->of.model)) return i;
  return (int)(seed % n_assigned_subjects);
}

static Ps backward(const Sums *sums) {
  return sums->launches[PHASE_input_gradient] +
         sums->launches[PHASE_weight_gradient];
}

static void show(const Drawn *d, const Comparison *c) {
  printf("%s", d->text);
  if (!c->is_legal) {
    printf("# refused\n");
    return;
  }
  for (int phase = 0; phase < N_PHASES; phase++) {
    printf("# %s: launches %.3f of %.3f us", phase_name((Phase)phase),
           (double)c->tables.launches[phase] * 1e-6,
           (double)c->list.launches[phase] * 1e-6);
    for (int l = 0; l < N_LOAD_LINKS; l++)
      printf(", link %d %.3f of %.3f", l,
             (double)c->tables.links[phase][l] * 1e-6,
             (double)c->list.links[phase][l] * 1e-6);
    printf("\n");
  }
  if (c->worst)
    printf("# worst product: %s, %.3f of %.3f us\n", c->worst,
           (double)c->worst_of[0] * 1e-6, (double)c->worst_of[1] * 1e-6);
  Text limit = text_create(arena_create(memory_create(no_memory, NULL)));
  bound_weights_print(&limit, &c->weights);
  printf(
      "# %d units placed otherwise than drawn; live bytes %lld of %lld; mean "
      "%lld, bound %lld of %lld ps (%s)\n",
      c->n_other_units, (long long)c->live, (long long)c->list.bytes,
      (long long)c->mean, (long long)c->bound, (long long)c->step,
      text_string(&limit));
}

static Row compare(const Settings *settings, int64_t seed) {
  int model = model_of(settings, seed);
  Program *program = program_of(model);
  Arena *arena = arena_beside(program->module->arena);
  Row row = {.seed = seed, .model = model};
  Drawn d;
  if (assigned_draw(program, arena, (uint64_t)seed, &d)) {
    Comparison c = assigned_compare(program, arena, &d);
    row.is_legal = c.is_legal;
    row.other_units = c.n_other_units;
    row.live = c.live, row.packed = c.list.bytes;
    row.mean = c.mean, row.bound = c.bound, row.step = c.step;
    row.forward[0] = c.tables.launches[PHASE_forward];
    row.forward[1] = c.list.launches[PHASE_forward];
    row.backward[0] = backward(&c.tables);
    row.backward[1] = d.proposal.recomputes ? 0 : backward(&c.list);
    row.products = c.n_products, row.other_products = c.n_other_products;
    row.attention = c.n_attention, row.other_attention = c.n_other_attention;
    if (settings->show >= 0) show(&d, &c);
  }
  arena_destroy(arena);
  return row;
}

/* ---- totals ---- */

static double distance(const long long *of) {
  double most = (double)(of[0] > of[1] ? of[0] : of[1]);
  return of[1] > 0 ? fabs((double)(of[0] - of[1])) / most : 0;
}

static void note_above(Above *above, double sum, double most, long long seed) {
  double more = sum / most - 1;
  if (more <= 0) return;
  above->n++;
  if (more <= above->most) return;
  above->most = more;
  above->worst = seed;
}

static void add(Totals *totals, const Row *row) {
  Totals *t = &totals[row->model];
  double step = (double)row->step;
  t->n++;
  if (!row->is_legal) return;
  t->legal++;
  t->described += row->other_units >= 0;
  t->as_drawn += row->other_units == 0;
  t->exact_products += row->other_products == 0;
  t->exact_attention += row->other_attention == 0;
  t->kernels += (distance(row->forward) + distance(row->backward)) / 2;
  note_above(&t->live, (double)row->live, (double)row->packed, row->seed);
  note_above(&t->bound, (double)row->bound, step, row->seed);
  note_above(row->other_units < 0 ? &t->drawn : &t->mean, (double)row->mean,
             step, row->seed);
}

static double percent(double part, double of) {
  return of > 0 ? 100 * part / of : 0;
}

/* The rest is measured. */
static bool holds(const Totals *totals) {
  int n = 0, exact = 0, legal = 0, above = 0;
  for (int i = 0; i < n_assigned_subjects; i++) {
    n += totals[i].n;
    legal += totals[i].legal;
    exact += totals[i].exact_attention;
    above += totals[i].mean.n + totals[i].live.n + totals[i].bound.n;
  }
  return exact == legal && above == 0 && 2 * legal > n;
}

static void print_above(const Above *above) {
  printf(" %5d %7.2f %% %7lld", above->n, 100 * above->most, above->worst);
}

static void print(const Totals *totals) {
  printf("%-13s %6s %6s %9s %9s %9s %9s %8s %24s %24s %24s %24s\n", "model",
         "plans", "legal", "described", "as drawn", "products", "attention",
         "kernels", "live bytes above (seed)", "mean above (seed)",
         "bound above (seed)", "mean of others (seed)");
  for (int i = 0; i < n_assigned_subjects; i++) {
    const Totals *t = &totals[i];
    if (t->n == 0) continue;
    printf("%-13s %6d %6d %9d %9d %7.1f %% %7.1f %% %6.2f %%",
           assigned_subjects[i].name, t->n, t->legal, t->described, t->as_drawn,
           percent(t->exact_products, t->legal),
           percent(t->exact_attention, t->legal),
           percent(t->kernels, t->legal));
    print_above(&t->live);
    print_above(&t->mean);
    print_above(&t->bound);
    print_above(&t->drawn);
    printf("\n");
  }
}

/* ---- the file of a run ---- */

static const char row_format[] = "%lld %d %d %d %d %d %d %d %lld %lld %lld "
                                 "%lld %lld %lld %lld %lld %lld\n";

static bool read_row(FILE *file, Row *r) {
  return fscanf(file, row_format, &r->seed, &r->model, &r->is_legal,
                &r->products, &r->other_products, &r->attention,
                &r->other_attention, &r->other_units, &r->live, &r->packed,
                &r->mean, &r->bound, &r->step, &r->forward[0], &r->forward[1],
                &r->backward[0], &r->backward[1]) == 17;
}

static void write_row(const Settings *settings, const Row *r) {
  if (!settings->of.state) return;
  FILE *file = fopen(settings->of.state, "a");
  if (!file ||
      fprintf(file, row_format, r->seed, r->model, r->is_legal, r->products,
              r->other_products, r->attention, r->other_attention,
              r->other_units, r->live, r->packed, r->mean, r->bound, r->step,
              r->forward[0], r->forward[1], r->backward[0],
              r->backward[1]) < 0 ||
      fclose(file) != 0) {
    perror(settings->of.state);
    exit(2);
  }
}

static int64_t read_state(const Settings *settings, Totals *totals,
                          int64_t *seed) {
  int64_t n = 0;
  Row row;
  FILE *file = settings->of.state ? fopen(settings->of.state, "r") : NULL;
  if (!file) return 0;
  while (read_row(file, &row)) {
    if (row.model < 0 || row.model >= n_assigned_subjects) break;
    add(totals, &row);
    *seed = row.seed + 1;
    n++;
  }
  fclose(file);
  return n;
}

static bool read_options(Settings *s, int argc, char **argv) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return false;
    const char *value = argv[i + 1];
    if (assigned_option(&s->of, argv[i], value)) continue;
    if (!strcmp(argv[i], "--from"))
      s->from = atoll(value);
    else if (!strcmp(argv[i], "--show"))
      s->show = s->from = atoll(value), s->of.plans = 1;
    else
      return false;
  }
  return true;
}

int main(int argc, char **argv) {
  Settings settings = {.of.plans = 1000, .from = 0, .show = -1};
  Totals totals[MOST_MODELS] = {{0}};
  if (!read_options(&settings, argc, argv)) {
    fprintf(stderr, "usage: bench_units [--plans N] [--from SEED] [--state "
                    "FILE] [--model NAME]\n       bench_units --show SEED\n");
    return 2;
  }
  int64_t seed = settings.from, n = read_state(&settings, totals, &seed);
  for (; n < settings.of.plans; n++, seed++) {
    Row row = compare(&settings, seed);
    write_row(&settings, &row);
    add(totals, &row);
  }
  print(totals);
  return settings.show < 0 && !holds(totals);
}
