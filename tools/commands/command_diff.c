/*
 * command_diff.c -- implements `dnnc diff A.plan B.plan --model MODEL --cluster
 * FILE`: by how much the step and the memory of a model differ under two plans,
 * by term, kind and path.
 *
 *     by term          a            b       b - a
 *       product   80.0 ms      40.0 ms    -40.0 ms
 *       all_reduce 0.0 ms      12.5 ms    +12.5 ms
 *       step      80.0 ms      52.5 ms    -27.5 ms
 *
 * Each table adds up to the difference of the two steps, to the picosecond, or
 * of the two arenas.  Where a plan has stages there is a table by stage, too:
 * of the critical path.
 */
#include "tools/show/critical_path.h"
#include "tools/show/inspect.h"
#include "tools/show/show_stages.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PATHS = 20, MOST_CLASSES = 16 };

/* The number of the row of a plan without stages. */
enum { NO_STAGES = -1 };

/* One line of a table: of the first plan and of the second. */
typedef struct DiffRow {
  const char *name;
  int64_t a, b;
  Bytes a_bytes, b_bytes; /* of a path: at the peak, and what stays */
} DiffRow;

typedef struct DiffRows {
  VEC(DiffRow) data;
  Map *index; /* name -> row, plus 1 */
} DiffRows;

typedef struct Diff {
  Arena *arena;
  const Priced *a, *b;
  Inspection memory_a, memory_b;
  const char *plan_a, *plan_b;
} Diff;

static DiffRow *diff_row(Arena *arena, DiffRows *rows, Name key,
                         const char *name) {
  intptr_t at = (intptr_t)map_get(rows->index, key);
  if (!at) {
    vec_push(arena, &rows->data, (DiffRow){.name = name});
    at = rows->data.n;
    map_put(rows->index, key, (void *)at);
  }
  return &rows->data.data[at - 1];
}

static DiffRows diff_terms(const Diff *d) {
  DiffRows rows = {.index = map_create(d->arena)};
  for (int i = 0; i < N_COST_PARTS; i++) {
    DiffRow row = {cost_term_info((CostTerm)i)->name, d->a->price.parts[i],
                   d->b->price.parts[i], 0, 0};
    if (row.a || row.b) vec_push(d->arena, &rows.data, row);
  }
  return rows;
}

static void add_phase(const Diff *d, DiffRows *rows, const char *name, Ps a,
                      Ps b) {
  if (a || b) vec_push(d->arena, &rows->data, (DiffRow){name, a, b, 0, 0});
}

static DiffRows phase_rows(const Diff *d, const PhaseTimes *a,
                           const PhaseTimes *b) {
  DiffRows rows = {0};
  for (int i = 0; i < N_PHASES; i++)
    add_phase(d, &rows, phase_name((uint8_t)i), a->kernels[i], b->kernels[i]);
  add_phase(d, &rows, "transfers", a->transfers, b->transfers);
  add_phase(d, &rows, "messages", a->messages, b->messages);
  return rows;
}

/* The phases of the slowest class of each plan. */
static DiffRows diff_phases(const Diff *d) {
  PhaseTimes a = phase_times(d->a, d->a->price.slowest);
  PhaseTimes b = phase_times(d->b, d->b->price.slowest);
  return phase_rows(d, &a, &b);
}

/* ---- by stage ---- */

/* A stage of either plan, with its part of the critical path. */
typedef struct StageDiff {
  int number; /* or NO_STAGES */
  PhaseTimes a, b;
} StageDiff;
typedef VEC(StageDiff) StageDiffs;

static int stages_of(const Priced *p) {
  return p->step->edges.n > 0 ? p->c->plan->stages.n : 0;
}

static const PhaseTimes *path_of(const Diff *d, const Priced *p) {
  int n = stages_of(p) > 0 ? stages_of(p) : 1;
  PhaseTimes *times = ARENA_ARRAY(d->arena, PhaseTimes, n);
  critical_path(p, n, times);
  return times;
}

/* Returns none where neither plan has stages. */
static StageDiffs diff_stages(const Diff *d) {
  StageDiffs out = {0};
  int n_a = stages_of(d->a), n_b = stages_of(d->b);
  int n = n_a > n_b ? n_a : n_b;
  if (n == 0) return out;
  const PhaseTimes *a = path_of(d, d->a), *b = path_of(d, d->b);
  for (int i = 0; i < n; i++) {
    StageDiff row = {.number = i};
    if (i < n_a) row.a = a[i];
    if (i < n_b) row.b = b[i];
    vec_push(d->arena, &out, row);
  }
  StageDiff alone = {.number = NO_STAGES};
  if (n_a == 0) alone.a = a[0];
  if (n_b == 0) alone.b = b[0];
  if (n_a == 0 || n_b == 0) vec_push(d->arena, &out, alone);
  return out;
}

static DiffRows stage_sums(const Diff *d, const StageDiffs *stages) {
  DiffRows rows = {0};
  for (int i = 0; i < stages->n; i++) {
    const StageDiff *row = &stages->data[i];
    const char *name = row->number == NO_STAGES
                           ? "no stages"
                           : arena_printf(d->arena, "stage %d", row->number);
    vec_push(d->arena, &rows.data,
             (DiffRow){name, phase_times_sum(&row->a), phase_times_sum(&row->b),
                       0, 0});
  }
  return rows;
}

/* ---- by kind and path ---- */

/* Names of kinds come from tables, so that equal ones have one address. */
static DiffRows diff_kinds(const Diff *d) {
  DiffRows rows = {.index = map_create(d->arena)};
  Names *names = d->a->c->module->names;
  for (int side = 0; side < 2; side++) {
    const Inspection *of = side ? &d->memory_b : &d->memory_a;
    const struct {
      const char *name;
      Bytes bytes;
    } rest[] = {{"holes", of->holes}, {"other entry points", of->others}};
    for (int i = 0; i < of->kinds.n + ARRAY_LENGTH(rest); i++) {
      bool is_rest = i >= of->kinds.n;
      int k = i - of->kinds.n;
      if (k == 1 && d->memory_a.others == 0 && d->memory_b.others == 0) break;
      Name name =
          name_intern(names, is_rest ? rest[k].name : of->kinds.data[i].name);
      DiffRow *row = diff_row(d->arena, &rows, name, name);
      *(side ? &row->b : &row->a) =
          is_rest ? rest[k].bytes : of->kinds.data[i].at_peak;
    }
  }
  return rows;
}

/* Where a repeat has other iterations under the two plans, the row has the
 * name that it has under the first. */
static DiffRows diff_paths(const Diff *d, bool folds) {
  DiffRows rows = {.index = map_create(d->arena)};
  for (int side = 0; side < 2; side++) {
    PathTable table = paths_of(d->arena, side ? d->b : d->a, folds);
    for (int i = 0; i < table.rows.n; i++) {
      const PathRow *path = &table.rows.data[i];
      DiffRow *row =
          diff_row(d->arena, &rows, path->key, path_text(d->arena, path));
      *(side ? &row->b : &row->a) = path->time;
      *(side ? &row->b_bytes : &row->a_bytes) =
          path->at_peak + path->persistent;
    }
  }
  return rows;
}

static int64_t distance(const DiffRow *row) {
  return row->b > row->a ? row->b - row->a : row->a - row->b;
}

static int compare_rows(const void *a, const void *b) {
  const DiffRow *x = a, *y = b;
  if (distance(x) != distance(y)) return distance(x) < distance(y) ? 1 : -1;
  if (x->a != y->a) return x->a < y->a ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void sort_rows(DiffRows *rows) {
  if (rows->data.n > 1)
    qsort(rows->data.data, (size_t)rows->data.n, sizeof *rows->data.data,
          compare_rows);
}

static DiffRow sum_of_rows(const DiffRows *rows, int from, const char *name) {
  DiffRow sum = {.name = name};
  for (int i = from; i < rows->data.n; i++) {
    sum.a += rows->data.data[i].a;
    sum.b += rows->data.data[i].b;
  }
  return sum;
}

/* ---- words ---- */

static void print_time_row(Text *out, const DiffRow *row) {
  text_printf(out, "  %-40s %16s %16s %16s\n", row->name,
              inspect_ms(out->arena, row->a), inspect_ms(out->arena, row->b),
              inspect_signed_ms(out->arena, row->b - row->a));
}

static void print_bytes_row(Text *out, const DiffRow *row) {
  text_printf(out, "  %-40s %16s %16s %16s\n", row->name,
              text_quantity(out->arena, (double)row->a, "B"),
              text_quantity(out->arena, (double)row->b, "B"),
              inspect_signed_bytes(out->arena, row->b - row->a));
}

static void print_table(Text *out, const char *title, const DiffRows *rows,
                        int most, const char *sum,
                        void (*print)(Text *, const DiffRow *)) {
  text_printf(out, "\n%-42s %16s %16s %16s\n", title, "a", "b", "b - a");
  for (int i = 0; i < rows->data.n && i < most; i++)
    print(out, &rows->data.data[i]);
  if (rows->data.n > most) {
    DiffRow others = sum_of_rows(rows, most, "others");
    print(out, &others);
  }
  DiffRow total = sum_of_rows(rows, 0, sum);
  print(out, &total);
}

static void print_class(Text *out, const Priced *p, int i) {
  const PriceClass *class = &p->price.classes[i];
  text_printf(
      out,
      "   %s on rank%s %s: compute %s, wait %s, bubble %.1f %%, memory "
      "%s\n",
      show_stage_numbers(out->arena, priced_program(p, i)->step),
      class->ranks > 1 ? "s" : "",
      show_ranks(out->arena, class->first_rank, class->ranks),
      inspect_ms(out->arena, class->compute),
      inspect_ms(out->arena, class->exposed), 100 * priced_bubble(class),
      text_quantity(out->arena, (double)priced_program(p, i)->peak, "B"));
}

static void print_side(Text *out, const char *name, const char *plan,
                       const Priced *p) {
  text_printf(out, "%s: %s: %d ranks, a step takes %s, memory %s: %s\n", name,
              plan, p->c->ranks, inspect_ms(out->arena, p->price.step),
              text_quantity(out->arena, (double)p->peak, "B"),
              p->peak <= p->memory ? "fits" : "does not fit");
  priced_print_profile(out, p);
  int n = p->step->edges.n > 0 ? p->price.n_classes : 0;
  for (int i = 0; i < n && i < MOST_CLASSES; i++) print_class(out, p, i);
  if (n > MOST_CLASSES)
    text_printf(out, "   and %d more classes of ranks\n", n - MOST_CLASSES);
}

static void print_diff(Text *out, const Diff *d) {
  text_printf(out, "%s on %s (%s), estimates\n", d->a->c->model->name,
              d->a->cluster->name, priced_devices(out->arena, d->a));
  print_side(out, "a", d->plan_a, d->a);
  print_side(out, "b", d->plan_b, d->b);
  DiffRows terms = diff_terms(d), kinds = diff_kinds(d);
  DiffRows paths = diff_paths(d, true), phases = diff_phases(d);
  StageDiffs stages = diff_stages(d);
  DiffRows sums = stage_sums(d, &stages);
  sort_rows(&paths);
  print_table(out, "by term", &terms, N_COST_PARTS, "step", print_time_row);
  print_table(out, "by phase, and waits", &phases, phases.data.n, "step",
              print_time_row);
  if (stages.n > 0)
    print_table(out, "by stage, on the critical path", &sums, MOST_PATHS,
                "step", print_time_row);
  print_table(out, "memory at the peak", &kinds, kinds.data.n, "arena",
              print_bytes_row);
  print_table(out, "by path", &paths, MOST_PATHS, "step", print_time_row);
}

/* ---- JSON ---- */

static void print_rows_json(Text *out, const char *key, const DiffRows *rows,
                            const char *name, const char *unit,
                            bool has_bytes) {
  text_printf(out, ",\"%s\":[", key);
  for (int i = 0; i < rows->data.n; i++) {
    const DiffRow *row = &rows->data.data[i];
    text_printf(out, "%s\n{\"%s\":", i ? "," : "", name);
    text_add_json(out, row->name);
    text_printf(out, ",\"a_%s\":%lld,\"b_%s\":%lld,\"diff_%s\":%lld", unit,
                (long long)row->a, unit, (long long)row->b, unit,
                (long long)(row->b - row->a));
    if (has_bytes)
      text_printf(out, ",\"a_bytes\":%lld,\"b_bytes\":%lld",
                  (long long)row->a_bytes, (long long)row->b_bytes);
    text_add(out, "}");
  }
  text_add(out, "]");
}

static void print_stages_json(Text *out, const Diff *d,
                              const StageDiffs *stages) {
  text_add(out, ",\"stages\":[");
  for (int i = 0; i < stages->n; i++) {
    const StageDiff *row = &stages->data[i];
    Ps a = phase_times_sum(&row->a), b = phase_times_sum(&row->b);
    text_printf(out, "%s\n{\"stage\":", i ? "," : "");
    if (row->number == NO_STAGES)
      text_add(out, "null");
    else
      text_printf(out, "%d", row->number);
    text_printf(out, ",\"a_ps\":%lld,\"b_ps\":%lld,\"diff_ps\":%lld",
                (long long)a, (long long)b, (long long)(b - a));
    DiffRows phases = phase_rows(d, &row->a, &row->b);
    print_rows_json(out, "phases", &phases, "phase", "ps", false);
    text_add(out, "}");
  }
  text_add(out, "]");
}

static void print_classes_json(Text *out, const Priced *p) {
  text_add(out, ",\"classes\":[");
  for (int i = 0; i < p->price.n_classes; i++) {
    const PriceClass *class = &p->price.classes[i];
    text_printf(out,
                "%s{\"first_rank\":%lld,\"ranks\":%d,\"step_ps\":%lld,"
                "\"compute_ps\":%lld,\"wait_ps\":%lld,\"peak_bytes\":%lld,"
                "\"bubble\":",
                i ? "," : "", (long long)class->first_rank, class->ranks,
                (long long)class->step, (long long)class->compute,
                (long long)class->exposed,
                (long long)priced_program(p, i)->peak);
    text_add_real(out, priced_bubble(class));
    text_add(out, ",");
    show_stage_numbers_json(out, priced_program(p, i)->step);
    text_add(out, "}");
  }
  text_add(out, "]");
}

static void print_side_json(Text *out, const char *name, const char *plan,
                            const Priced *p) {
  text_printf(out, "%s\"%s\":{\"plan\":", *name == 'a' ? "" : ",", name);
  text_add_json(out, plan);
  text_printf(out,
              ",\"n_ranks\":%d,\"step_ps\":%lld,\"peak_bytes\":%lld,"
              "\"fits\":%s",
              p->c->ranks, (long long)p->price.step, (long long)p->peak,
              p->peak <= p->memory ? "true" : "false");
  priced_print_profile_json(out, p);
  if (p->step->edges.n > 0) print_classes_json(out, p);
  text_add(out, "}");
}

static void print_diff_json(Text *out, const Diff *d) {
  DiffRows terms = diff_terms(d), kinds = diff_kinds(d);
  DiffRows paths = diff_paths(d, false), phases = diff_phases(d);
  StageDiffs stages = diff_stages(d);
  text_add(out, "{");
  print_side_json(out, "a", d->plan_a, d->a);
  print_side_json(out, "b", d->plan_b, d->b);
  text_printf(out, ",\"diff_ps\":%lld,\"diff_bytes\":%lld",
              (long long)(d->b->price.step - d->a->price.step),
              (long long)(d->b->peak - d->a->peak));
  print_rows_json(out, "terms", &terms, "term", "ps", false);
  print_rows_json(out, "phases", &phases, "phase", "ps", false);
  if (stages.n > 0) print_stages_json(out, d, &stages);
  print_rows_json(out, "memory", &kinds, "kind", "bytes", false);
  print_rows_json(out, "paths", &paths, "path", "ps", true);
  text_add(out, "}\n");
}

/* ---- the command ---- */

/* The price, looked at where a rank needs most. */
static Priced largest_of(const Priced *p) {
  Priced own = *p;
  for (int c = 0; c < p->price.n_classes; c++)
    if (priced_program(p, c)->peak > priced_program(&own, own.shown)->peak)
      priced_show_class(&own, c);
  return own;
}

int command_diff(Tool *tool) {
  Options *options = &tool->options;
  tool_use_certificate(tool, options->subject);
  if (!options->model) {
    message_print("dnnc: error: what a plan costs follows from a model\n"
                  "help: name it with --model MODEL\n");
    return EXIT_user;
  }
  Priced a, b;
  Diff diff = {.arena = tool->arena,
               .a = &a,
               .b = &b,
               .plan_a = options->subject,
               .plan_b = options->other};
  options->subject = options->model;
  options->plan = diff.plan_a;
  int code = tool_price(tool, true, &a);
  if (code == EXIT_done)
    code = tool_price_other(tool, &a, diff.plan_b, true, &b);
  if (code != EXIT_done) return code;
  Priced largest_a = largest_of(&a), largest_b = largest_of(&b);
  diff.memory_a = inspect_memory(tool->arena, &largest_a);
  diff.memory_b = inspect_memory(tool->arena, &largest_b);
  Text out = text_create(tool->arena);
  (options->json ? print_diff_json : print_diff)(&out, &diff);
  tool_print(&out);
  return EXIT_done;
}
