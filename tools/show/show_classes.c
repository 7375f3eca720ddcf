/*
 * show_classes.c -- prints how long the ranks of each class compute and
 * wait in a priced step, and whether their memory suffices.
 *
 *     ranks 0..127, stage 0 (a100_80g): compute 21755.186 ms, ...; memory: ...
 *
 * Many classes that follow each other and are alike are one row, with the least
 * and the most of what differs.
 */
#include "tools/show/show_classes.h"

#include <string.h>

#include "tools/show/show_stages.h"

Bytes priced_peak_of(const Priced *s, const PriceClass *class) {
  return s->programs[class->program].peak;
}

Bytes priced_memory_of(const Priced *s, const PriceClass *class) {
  Bytes memory = device_usable_memory(class->group->device);
  return s->pinned > 0 && s->pinned < memory ? s->pinned : memory;
}

double priced_bubble(const PriceClass *class) {
  Ps waits = class->parts[COST_message];
  return class->step > 0 ? (double)waits / (double)class->step : 0;
}

/* ---- classes that are alike ---- */

typedef struct ClassRun {
  const Priced *s;
  const PriceClass *first;
  int n;
} ClassRun;

static const EntryPoint *step_of(const Priced *s, const PriceClass *class) {
  return s->programs[class->program].step;
}

static int stage_of(const Priced *s, const PriceClass *class, int i) {
  return step_of(s, class)->stages.data[i].number;
}

/* Each stage is one on from, or before, that of the class before. */
static bool stages_follow(const ClassRun *run) {
  const PriceClass *next = run->first + run->n, *last = next - 1;
  int n = step_of(run->s, run->first)->stages.n;
  if (step_of(run->s, next)->stages.n != n) return false;
  for (int i = 0; i < n; i++) {
    int by = stage_of(run->s, next, i) - stage_of(run->s, last, i);
    if (by != 1 && by != -1) return false;
    if (run->n > 1 &&
        by != stage_of(run->s, last, i) - stage_of(run->s, last - 1, i))
      return false;
  }
  return true;
}

static bool fits(const Priced *s, const PriceClass *class) {
  return priced_peak_of(s, class) <= priced_memory_of(s, class);
}

/* `far` is the largest difference of the times in which two classes that are
 * alike compute, as a share. */
static bool takes_next(const ClassRun *run, double far) {
  const PriceClass *first = run->first, *next = first + run->n;
  double apart = (double)(next->compute - first->compute);
  return next->group == first->group && next->ranks == first->ranks &&
         next->first_rank == next[-1].first_rank + next[-1].ranks &&
         fits(run->s, next) == fits(run->s, first) && stages_follow(run) &&
         (apart < 0 ? -apart : apart) <= far * (double)first->compute;
}

static ClassRun run_from(const Priced *s, int at, double far) {
  enum { LEAST = 3 };
  ClassRun run = {s, &s->price.classes[at], 1};
  while (at + run.n < s->price.n_classes && takes_next(&run, far)) run.n++;
  if (run.n < LEAST) run.n = 1;
  return run;
}

static int count_runs(const Priced *s, double far) {
  int n = 0;
  for (int at = 0; at < s->price.n_classes; at += run_from(s, at, far).n) n++;
  return n;
}

/* Few classes have a row each.  The least difference by which rows are few. */
static double choose_far(const Priced *s) {
  static const double differences[] = {0.001, 0.01, 0.1};
  enum { FEW = 4, MOST = 8 };
  if (s->price.n_classes <= FEW) return -1;
  for (int i = 0; i < ARRAY_LENGTH(differences); i++)
    if (count_runs(s, differences[i]) <= MOST) return differences[i];
  return 1;
}

/* ---- what differs ---- */

typedef const char *(*AmountText)(Arena *arena, double amount);
typedef double (*ClassAmount)(const Priced *s, const PriceClass *class);

static const char *time_text(Arena *arena, double amount) {
  return arena_printf(arena, "%.3f ms", amount * 1e-9);
}

static const char *percent_text(Arena *arena, double amount) {
  return arena_printf(arena, "%.1f %%", 100 * amount);
}

static const char *bytes_text(Arena *arena, double amount) {
  return text_quantity(arena, amount, "B");
}

static double compute_of(const Priced *s, const PriceClass *class) {
  (void)s;
  return (double)class->compute;
}

static double wait_of(const Priced *s, const PriceClass *class) {
  (void)s;
  return (double)class->exposed;
}

static double bubble_of(const Priced *s, const PriceClass *class) {
  (void)s;
  return priced_bubble(class);
}

static double peak_of(const Priced *s, const PriceClass *class) {
  return (double)priced_peak_of(s, class);
}

/* Returns "4.456 ms", or "4.456 ms to 4.520 ms". */
static const char *amounts(Arena *arena, const ClassRun *run, ClassAmount of,
                           AmountText text) {
  double least = of(run->s, run->first), most = least;
  for (int i = 1; i < run->n; i++) {
    double amount = of(run->s, run->first + i);
    if (amount < least) least = amount;
    if (amount > most) most = amount;
  }
  const char *from = text(arena, least), *to = text(arena, most);
  return strcmp(from, to) == 0 ? from
                               : arena_printf(arena, "%s to %s", from, to);
}

/* ---- rows ---- */

static Bytes missing_of(const ClassRun *run) {
  Bytes most = 0;
  for (int i = 0; i < run->n; i++) {
    const PriceClass *class = run->first + i;
    Bytes missing =
        priced_peak_of(run->s, class) - priced_memory_of(run->s, class);
    if (missing > most) most = missing;
  }
  return most;
}

static void print_memory(Text *out, const ClassRun *run) {
  const Priced *s = run->s;
  Bytes memory = priced_memory_of(s, run->first), missing = missing_of(run);
  Bytes reserve = run->first->group->device->values[DEVICE_reserve];
  text_printf(out, "memory: %s of %s",
              amounts(out->arena, run, peak_of, bytes_text),
              bytes_text(out->arena, (double)memory));
  if (memory == s->pinned)
    text_add(out, ", which the plan allows");
  else if (reserve > 0)
    text_printf(out, ", without %s of driver and communication library",
                bytes_text(out->arena, (double)reserve));
  if (missing == 0)
    text_add(out, ": fits\n");
  else
    text_printf(out, ": does not fit, %s are missing\n",
                bytes_text(out->arena, (double)missing));
}

static double persistent_of(const Priced *s, const PriceClass *class) {
  return (double)step_of(s, class)->arena.persistent;
}

static double step_bytes_of(const Priced *s, const PriceClass *class) {
  return (double)step_of(s, class)->arena.step;
}

static double frames_of(const Priced *s, const PriceClass *class) {
  return (double)step_of(s, class)->arena.frames;
}

static double messages_of(const Priced *s, const PriceClass *class) {
  return (double)step_of(s, class)->arena.messages;
}

static double scratch_of(const Priced *s, const PriceClass *class) {
  return (double)step_of(s, class)->arena.scratch;
}

static void print_arena(Text *out, const ClassRun *run) {
  static const struct {
    const char *name;
    ClassAmount of;
  } parts[] = {{"persistent", persistent_of},
               {"step", step_bytes_of},
               {"frames", frames_of},
               {"messages", messages_of},
               {"scratch", scratch_of}};
  text_add(out, "  arena of its step:");
  for (int i = 0; i < ARRAY_LENGTH(parts); i++)
    text_printf(out, "%s %s %s", i ? "," : "", parts[i].name,
                amounts(out->arena, run, parts[i].of, bytes_text));
  text_add(out, "\n");
}

/* "stages 1..6 and 14..9" */
static const char *stages_text(Arena *arena, const ClassRun *run) {
  const EntryPoint *step = step_of(run->s, run->first);
  Text out = text_create(arena);
  if (run->n == 1) return show_stage_numbers(arena, step);
  for (int i = 0, n = step->stages.n; i < n; i++)
    text_printf(&out, "%s%d..%d",
                i == 0      ? "stages "
                : i + 1 < n ? ", "
                            : " and ",
                stage_of(run->s, run->first, i),
                stage_of(run->s, run->first + run->n - 1, i));
  return text_string(&out);
}

static void print_stages(Text *out, const ClassRun *run) {
  const PriceClass *first = run->first, *last = first + run->n - 1;
  int64_t ranks = last->first_rank + last->ranks - first->first_rank;
  text_printf(out, "rank%s %s, %s (%s): compute %s, wait %s, bubble %s; ",
              ranks > 1 ? "s" : "",
              show_ranks(out->arena, first->first_rank, ranks),
              stages_text(out->arena, run), first->group->device->name,
              amounts(out->arena, run, compute_of, time_text),
              amounts(out->arena, run, wait_of, time_text),
              amounts(out->arena, run, bubble_of, percent_text));
  print_memory(out, run);
  print_arena(out, run);
}

/* Workers, or a server. */
static void print_titled(Text *out, const ClassRun *run) {
  const PriceClass *first = run->first;
  text_printf(out, "rank%s %s, %s (%s): compute %s, wait %s; ",
              first->ranks > 1 ? "s" : "",
              show_ranks(out->arena, first->first_rank, first->ranks),
              run->s->programs[first->program].program->title,
              first->group->device->name,
              amounts(out->arena, run, compute_of, time_text),
              amounts(out->arena, run, wait_of, time_text));
  print_memory(out, run);
}

static void print_ranks(Text *out, const ClassRun *run) {
  const PriceClass *class = run->first;
  text_printf(out, "%d ranks of %s (%s): compute %s, wait %s; ", class->ranks,
              class->group->name, class->group->device->name,
              amounts(out->arena, run, compute_of, time_text),
              amounts(out->arena, run, wait_of, time_text));
  print_memory(out, run);
}

void priced_print_classes(Text *out, const Priced *s) {
  int n = s->price.n_classes;
  if (n == 1) {
    ClassRun run = run_from(s, 0, -1);
    print_memory(out, &run);
    if (s->step->edges.n > 0) print_arena(out, &run);
    return;
  }
  double far = choose_far(s);
  for (int at = 0; at < n;) {
    bool is_alone = s->n_programs == 1 || s->price.servers;
    ClassRun run = run_from(s, at, is_alone ? -1 : far);
    if (s->price.servers)
      print_titled(out, &run);
    else if (s->n_programs > 1)
      print_stages(out, &run);
    else
      print_ranks(out, &run);
    at += run.n;
  }
}
