/*
 * table.c -- adds up the cases of a run: what was compared, how far the plans
 * that were found are from the best ones, and what lies outside of the space.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/sound/sound.h"

/* ---- rows as text ---- */

const char sound_columns[] =
    "# seed ranks pins limit unequal exit plans legal fitting found_ps best_ps "
    "floor_ps bound_ps outside outside_fitting outside_ps verified faults "
    "seconds full early staged unsupported eliminated engine found best\n";

static const char *words(const char *text) {
  return text[0] ? text : "-";
}

void sound_write_row(Text *out, const SoundRow *r) {
  text_printf(out,
              "%llu %d %d %d %d %d %d %d %d %lld %lld %lld %lld %d %d %lld %d "
              "%u %.3f %d %d %d %d %d %d %s %s\n",
              r->seed, r->ranks, r->has_pins, r->has_limit, r->are_unequal,
              r->exit_code, r->n, r->n_legal, r->n_fitting, r->found, r->best,
              r->floor, r->bound, r->n_outside, r->n_outside_fitting,
              r->outside, r->verified, r->faults, r->seconds, r->is_full,
              r->is_early, r->n_staged, r->is_unsupported, r->n_eliminated,
              r->n_engine, words(r->found_words), words(r->best_words));
}

bool sound_read_row(const char *line, SoundRow *r) {
  enum { N_COLUMNS = 27 };
  _Static_assert(SOUND_WORDS == 96, "the width of words below");
  return sscanf(line,
                "%llu %d %d %d %d %d %d %d %d %lld %lld %lld %lld %d %d %lld "
                "%d %u %lf %d %d %d %d %d %d %95s %95s",
                &r->seed, &r->ranks, &r->has_pins, &r->has_limit,
                &r->are_unequal, &r->exit_code, &r->n, &r->n_legal,
                &r->n_fitting, &r->found, &r->best, &r->floor, &r->bound,
                &r->n_outside, &r->n_outside_fitting, &r->outside, &r->verified,
                &r->faults, &r->seconds, &r->is_full, &r->is_early,
                &r->n_staged, &r->is_unsupported, &r->n_eliminated,
                &r->n_engine, r->found_words, r->best_words) == N_COLUMNS;
}

/* ---- sums ---- */

/* Limits of how much longer than the best plan the found one takes. */
static const double limits[] = {0, 0.01, 0.05, 0.10};

/* Ratios of cases. */
typedef struct Ratios {
  int n;
  double sum, largest;
  unsigned long long worst; /* seed of the largest */
} Ratios;

static void add_ratio(Ratios *ratios, double ratio, unsigned long long seed) {
  if (ratios->n++ == 0 || ratio > ratios->largest) {
    ratios->largest = ratio;
    ratios->worst = seed;
  }
  ratios->sum += ratio;
}

static double mean(const Ratios *ratios) {
  return ratios->n > 0 ? ratios->sum / ratios->n : 0;
}

typedef struct Totals {
  int n, pins, limits, unequal, failed, found, nothing_fits, none_legal;
  int large; /* cases with 500 plans or more */
  long long plans, legal, fitting, outside, outside_fitting;
  int faults[N_FAULTS];
  int bounds;   /* certificates that have one */
  Ratios above; /* of found to best plan, 0 where the found one is faster */
  int over[ARRAY_LENGTH(limits)], faster;
  Ratios gaps;      /* of found plan to bound */
  int with_outside; /* cases that have fitting plans outside of the space */
  Ratios won;       /* by those that are faster than the found one */
  int verified[VERIFIED_wrong + 1];
  double seconds, most_seconds;
  int full, early, unsupported, with_stages; /* of cases with stages */
  long long staged;                          /* plans that fit */
  long long eliminated, engine;              /* sums of tables */
} Totals;

static void add_distances(Totals *t, const SoundRow *r) {
  if (r->best == 0) return;
  double above = (double)r->found / (double)r->best - 1;
  t->faster += above < 0;
  if (above < 0) above = 0;
  add_ratio(&t->above, above, r->seed);
  for (int i = 0; i < ARRAY_LENGTH(limits); i++)
    t->over[i] += above > limits[i];
}

static void add_found(Totals *t, const SoundRow *r) {
  t->found++;
  add_distances(t, r);
  t->verified[r->verified]++;
  t->bounds += r->bound > 0;
  if (r->bound > 0)
    add_ratio(&t->gaps, (double)r->found / (double)r->bound - 1, r->seed);
  t->with_outside += r->n_outside_fitting > 0;
  if (r->n_outside_fitting > 0 && r->outside < r->found)
    add_ratio(&t->won, (double)r->found / (double)r->outside - 1, r->seed);
}

static void add_row(Totals *t, const SoundRow *r) {
  t->n++;
  t->pins += r->has_pins;
  t->limits += r->has_limit;
  t->unequal += r->are_unequal;
  t->failed += r->faults != 0;
  t->nothing_fits += r->exit_code == 2;
  t->none_legal += r->exit_code == 1;
  t->large += r->n >= 500;
  t->plans += r->n;
  t->legal += r->n_legal;
  t->fitting += r->n_fitting;
  t->outside += r->n_outside;
  t->outside_fitting += r->n_outside_fitting;
  t->full += r->is_full;
  t->early += r->is_early;
  t->unsupported += r->is_unsupported;
  t->with_stages += r->n_staged > 0;
  t->staged += r->n_staged;
  t->eliminated += r->n_eliminated;
  t->engine += r->n_engine;
  t->seconds += r->seconds;
  if (r->seconds > t->most_seconds) t->most_seconds = r->seconds;
  for (int i = 0; i < N_FAULTS; i++) t->faults[i] += r->faults >> i & 1;
  if (r->exit_code == 0 && r->found > 0) add_found(t, r);
}

static Totals totals_of(const SoundRows *rows) {
  Totals t = {0};
  for (int i = 0; i < rows->n; i++) add_row(&t, &rows->data[i]);
  return t;
}

/* ---- the table ---- */

static void print_ratios(Text *out, const char *what, const Ratios *r) {
  if (r->n == 0) return;
  text_printf(out, "%s: mean %.2f %%, largest %.2f %% (seed %llu)\n", what,
              100 * mean(r), 100 * r->largest, r->worst);
}

static void print_distances(Text *out, const Totals *t) {
  text_printf(out,
              "the found plan against the best of these: as fast in %d, faster "
              "in %d (by lines of other kinds)",
              t->above.n - t->over[0] - t->faster, t->faster);
  for (int i = 0; i < ARRAY_LENGTH(limits); i++)
    text_printf(out, ", more than %g %% slower in %d", 100 * limits[i],
                t->over[i]);
  text_add(out, "\n");
  print_ratios(out, "  slower", &t->above);
  if (t->bounds > 0)
    text_printf(out, "%d certificates have a bound\n", t->bounds);
  print_ratios(out, "  the found plan above the bound", &t->gaps);
}

static void print_outside(Text *out, const Totals *t) {
  if (t->outside == 0) return;
  text_printf(out,
              "outside of the space: %lld plans, %lld fit; one is faster than "
              "the found plan in %d of %d cases (%.1f %%)\n",
              t->outside, t->outside_fitting, t->won.n, t->with_outside,
              t->with_outside ? 100.0 * t->won.n / t->with_outside : 0);
  print_ratios(out, "  the found plan slower", &t->won);
}

/* Says what is faster by far, since it is what the search does not see. */
static void print_slow(Text *out, const SoundRows *rows) {
  const double limit = limits[ARRAY_LENGTH(limits) - 1];
  for (int i = 0; i < rows->n; i++) {
    const SoundRow *r = &rows->data[i];
    if (r->exit_code != 0 || r->best == 0 || r->found == 0) continue;
    double above = (double)r->found / (double)r->best - 1;
    if (above > limit)
      text_printf(out, "  seed %llu%s: %.1f %% slower: %s, the best is %s\n",
                  r->seed, r->is_full ? "" : " (drawn)", 100 * above,
                  r->found_words, r->best_words);
  }
}

static void print_stages(Text *out, const Totals *t, const SoundRows *rows) {
  if (t->with_stages == 0) return;
  text_printf(out,
              "stages: %lld plans with stages fit, in %d cases; %d cases are "
              "compared in full, in %d updates may be early, %d have pins that "
              "are not supported yet\n",
              t->staged, t->with_stages, t->full, t->early, t->unsupported);
  print_slow(out, rows);
}

void sound_print_table(Text *out, const SoundRows *rows) {
  Totals t = totals_of(rows);
  text_printf(out,
              "%d cases, %d failed; %d have pins, %d a limit of memory, %d "
              "unequal devices\n",
              t.n, t.failed, t.pins, t.limits, t.unequal);
  for (int i = 0; i < N_FAULTS; i++)
    if (t.faults[i] > 0)
      text_printf(out, "  %d: %s\n", t.faults[i],
                  sound_fault_text((SoundFault)i));
  text_printf(out,
              "%lld plans, of which %lld are legal and %lld fit; %d cases have "
              "500 or more\n",
              t.plans, t.legal, t.fitting, t.large);
  text_printf(out,
              "found a plan in %d, nothing fits in %d, nothing is legal in %d; "
              "%.2f s of processor time a search, %.2f s at most\n",
              t.found, t.nothing_fits, t.none_legal,
              t.n > 0 ? t.seconds / t.n : 0, t.most_seconds);
  text_printf(out,
              "%lld sums of tables were eliminated, the general engine took "
              "%lld\n",
              t.eliminated, t.engine);
  print_distances(out, &t);
  print_outside(out, &t);
  print_stages(out, &t, rows);
  text_printf(out,
              "`dnnc verify`: equal in %d, refused at small sizes in %d, not "
              "equal in %d\n",
              t.verified[VERIFIED_equal], t.verified[VERIFIED_refused],
              t.verified[VERIFIED_wrong]);
}

/* ---- JSON ---- */

static void json_ratios(Text *out, const char *name, const Ratios *r) {
  text_printf(out,
              ",\"%s\":{\"cases\":%d,\"mean\":%.6g,\"largest\":%.6g,"
              "\"seed\":%llu}",
              name, r->n, mean(r), r->largest, r->worst);
}

void sound_print_json(Text *out, const SoundRows *rows) {
  Totals t = totals_of(rows);
  text_printf(out,
              "{\"cases\":%d,\"failed\":%d,\"pins\":%d,\"limits\":%d,"
              "\"unequal\":%d,\"large\":%d,\"plans\":%lld,\"legal\":%lld,"
              "\"fitting\":%lld,\"found\":%d,\"nothing_fits\":%d,"
              "\"none_legal\":%d,\"search_s\":%.6g,\"faults\":{",
              t.n, t.failed, t.pins, t.limits, t.unequal, t.large, t.plans,
              t.legal, t.fitting, t.found, t.nothing_fits, t.none_legal,
              t.seconds);
  for (int i = 0; i < N_FAULTS; i++)
    text_printf(out, "%s\"%s\":%d", i ? "," : "",
                sound_fault_name((SoundFault)i), t.faults[i]);
  text_printf(out,
              "},\"solved\":{\"elimination\":%lld,\"engine\":%lld},"
              "\"faster\":%d,\"slower\":[",
              t.eliminated, t.engine, t.faster);
  for (int i = 0; i < ARRAY_LENGTH(limits); i++)
    text_printf(out, "%s{\"than\":%g,\"cases\":%d}", i ? "," : "", limits[i],
                t.over[i]);
  text_add(out, "]");
  json_ratios(out, "above_best", &t.above);
  json_ratios(out, "above_bound", &t.gaps);
  text_printf(out,
              ",\"outside\":{\"plans\":%lld,\"fitting\":%lld,\"cases\":%d}",
              t.outside, t.outside_fitting, t.with_outside);
  json_ratios(out, "outside_wins", &t.won);
  text_printf(out,
              ",\"stages\":{\"cases\":%d,\"plans\":%lld,\"full\":%d,"
              "\"early\":%d,\"unsupported\":%d}",
              t.with_stages, t.staged, t.full, t.early, t.unsupported);
  text_printf(out,
              ",\"verified\":{\"equal\":%d,\"refused\":%d,\"wrong\":%d}}\n",
              t.verified[VERIFIED_equal], t.verified[VERIFIED_refused],
              t.verified[VERIFIED_wrong]);
}
