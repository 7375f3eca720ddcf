/*
 * tune_measure.c -- runs probes and collects what they measured.
 *
 *     NAME.profile       path,phase,kernel,cores,ps,runs    (docs/profile.md)
 *     NAME.kernels.csv   op,dtype,cores,batch,m,n,k,flops,bytes,ps
 *     NAME.links.csv     op,ranks,nodes,bytes,ps,beside_ps,taken,following_ps
 *     NAME.cluster       names the last two
 *
 * Each file is replaced as a whole after each probe, so that what was measured
 * stays when the command is interrupted.  A time is the median over the runs of
 * the probes that had it: what else a machine does slows all kernels of one
 * run.
 *
 * The host of a virtual machine may move its cores apart, which slows what they
 * compute together (core_distance.c).  Runs meanwhile count only for kernels of
 * which there are no others.
 */
#include "tools/tune/core_distance.h"
#include "tools/tune/tune.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_FILE_BYTES = 64 << 20 };

static const char *file_in(const Tuning *tuning, const char *name) {
  return arena_printf(tuning->arena, "%s/%s", tuning->folder, name);
}

static int64_t greater(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* ---- children ---- */

static bool run_words(Tuning *tuning, const char *program, const Words *words,
                      const char **out_why) {
  const char *errors = file_in(tuning, "errors");
  int code = child_run(tuning->arena, program,
                       &(Child){.words = words->data,
                                .n_words = words->n,
                                .err = errors,
                                .is_alone = true,
                                .limit_ms = tune_left_ms(tuning),
                                .is_stopped = tool_is_stopped});
  if (code == EXIT_done) return true;
  if (code == CHILD_late) tuning->is_late = true;
  *out_why = tune_why(tuning, code, errors);
  return false;
}

static void add_word(const Tuning *tuning, Words *words, const char *name,
                     const char *value) {
  vec_push(tuning->arena, words, name);
  if (value) vec_push(tuning->arena, words, value);
}

static bool is_held_out(const Tuning *tuning, const char *works) {
  const char *text;
  size_t n;
  Status status = file_read(tuning->arena, works, MOST_FILE_BYTES, &text, &n);
  for (int i = 0; status.code == STATUS_ok && i < tuning->held_out.n; i++)
    if (strcmp(text, tuning->held_out.data[i]) == 0) return true;
  return false;
}

/* Writes the bundle, and the work of its kernels. */
static bool build(Tuning *tuning, const Probe *probe, const char *bundle,
                  const char *works, const char **out_why) {
  const char *plan = file_in(tuning, "probe.plan");
  Status status = file_replace(plan, probe->text, strlen(probe->text));
  if (status.code != STATUS_ok) {
    *out_why = status.message;
    return false;
  }
  Words words = {0};
  vec_push(tuning->arena, &words, "build");
  tune_model_words(tuning, &words);
  if (probe->override) vec_push(tuning->arena, &words, probe->override);
  tune_build_words(tuning, &words);
  add_word(tuning, &words, "--plan", plan);
  add_word(tuning, &words, "--kernels", works);
  add_word(tuning, &words, "--output", bundle);
  int64_t begin = child_now_ms();
  if (!run_words(tuning, NULL, &words, out_why)) return false;
  tuning->build_ms = greater(tuning->build_ms, child_now_ms() - begin);
  return true;
}

static bool run_bundle(Tuning *tuning, const char *bundle, const char *option,
                       const char *file, int steps, const char **out_why) {
  Arena *arena = tuning->arena;
  Words words = {0};
  add_word(tuning, &words, option, file);
  if (steps > 0)
    add_word(tuning, &words, "--steps", arena_printf(arena, "%d", steps));
  if (tuning->tool->options.data)
    add_word(tuning, &words, "--data", tuning->tool->options.data);
  add_word(tuning, &words, "--no-save", NULL);
  add_word(tuning, &words, "--quiet", NULL);
  return run_words(tuning, arena_printf(arena, "%s/run", bundle), &words,
                   out_why);
}

/* ---- tables ---- */

static void add_row(Tuning *tuning, TuneTable *table, const char *key,
                    const char *fields, TuneTime time, int64_t runs) {
  Arena *arena = tuning->arena;
  Name name = name_intern(tuning->tool->module.names, key);
  if (!table->at) table->at = map_create(arena);
  int at = (int)(intptr_t)map_get(table->at, name) - 1;
  if (at < 0) {
    at = table->rows.n;
    vec_push(arena, &table->rows, (TuneRow){.fields = fields});
    map_put(table->at, name, (void *)(intptr_t)(at + 1));
  }
  TuneRow *row = &table->rows.data[at];
  vec_push(arena, &row->times, time);
  row->runs += runs;
}

static int by_number(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* The lower one of the two in the middle. */
static int64_t median_time(const Tuning *tuning, const TuneRow *row) {
  typedef VEC(int64_t) Times;
  Times near = {0}, all = {0};
  for (int i = 0; i < row->times.n; i++) {
    const TuneTime *time = &row->times.data[i];
    vec_push(tuning->arena, &all, time->ps);
    if (tune_is_near(tuning, time->apart_ns))
      vec_push(tuning->arena, &near, time->ps);
  }
  if (near.n > 0) all = near;
  qsort(all.data, (size_t)all.n, sizeof *all.data, by_number);
  return all.data[(all.n - 1) / 2];
}

static Status write_table(const Tuning *tuning, TuneTable *table) {
  Text out = text_create(tuning->arena);
  text_printf(&out, "%s\n", table->header);
  for (int i = 0; i < table->rows.n; i++) {
    TuneRow *row = &table->rows.data[i];
    text_printf(&out, "%s,%lld", row->fields,
                (long long)median_time(tuning, row));
    if (table->has_runs) text_printf(&out, ",%lld", (long long)row->runs);
    text_add(&out, "\n");
  }
  return file_replace(
      arena_printf(tuning->arena, "%s%s", tuning->name, table->ending),
      text_string(&out), out.n);
}

/* Cuts the last field off; NULL: there is none. */
static const char *cut_field(char *line) {
  char *comma = strrchr(line, ',');
  if (!comma) return NULL;
  *comma = 0;
  return comma + 1;
}

/* The lines of a file after its header; NULL at the end. */
static char *next_line(Arena *arena, const char **at) {
  if (!**at) return NULL;
  size_t n = strcspn(*at, "\n");
  char *line = arena_printf(arena, "%.*s", (int)n, *at);
  *at += n + ((*at)[n] != 0);
  return line;
}

static bool read_lines(const Tuning *tuning, const char *path,
                       const char **out) {
  size_t n;
  Status status = file_read(tuning->arena, path, MOST_FILE_BYTES, out, &n);
  return status.code == STATUS_ok && next_line(tuning->arena, out);
}

/* `kernel,part,op,dtype,batch,m,n,k,flops,bytes` by kernel, from `op` on. */
static Map *read_works(Tuning *tuning, const char *path) {
  Map *works = map_create(tuning->arena);
  const char *at;
  if (!read_lines(tuning, path, &at)) return works;
  for (char *line; (line = next_line(tuning->arena, &at));) {
    char *part = strchr(line, ','), *work = part ? strchr(part + 1, ',') : NULL;
    if (!work) continue;
    *part = 0;
    map_put(works, name_intern(tuning->tool->module.names, line), work + 1);
  }
  return works;
}

/* "dot,f32,12,64,..." becomes "dot,f32,CORES,12,64,..." */
static const char *with_cores(Arena *arena, const char *work,
                              const char *cores) {
  size_t n = strcspn(work, ",");
  n += 1 + strcspn(work + n + 1, ",");
  return arena_printf(arena, "%.*s,%s%s", (int)n, work, cores, work + n);
}

static bool collect(Tuning *tuning, const BuiltProbe *probe,
                    const char **out_why) {
  Arena *arena = tuning->arena;
  Map *works = read_works(tuning, probe->works);
  const char *at;
  int64_t apart_ns = probe->aparts_ns.data[probe->aparts_ns.n - 1];
  *out_why = "it wrote no profile";
  if (!read_lines(tuning, file_in(tuning, "profile.csv"), &at)) return false;
  for (char *line; (line = next_line(arena, &at));) {
    const char *runs = cut_field(line), *ps = runs ? cut_field(line) : NULL;
    if (!ps) return false;
    const char *fields = arena_strdup(arena, line);
    const char *cores = cut_field(line), *kernel = cut_field(line);
    if (!kernel) return false;
    TuneTime time = {atoll(ps), apart_ns};
    add_row(tuning, &tuning->profile, fields, fields, time, atoll(runs));
    const char *work =
        map_get(works, name_intern(tuning->tool->module.names, kernel));
    if (work)
      add_row(tuning, &tuning->kernels,
              arena_printf(arena, "%s,%s", kernel, cores),
              with_cores(arena, work, cores), time, atoll(runs));
  }
  Status status = write_table(tuning, &tuning->profile);
  if (status.code == STATUS_ok) status = write_table(tuning, &tuning->kernels);
  *out_why = status.message;
  return status.code == STATUS_ok;
}

/* ---- probes ---- */

int64_t tune_core_distance(Tuning *tuning) {
  if (strcmp(tuning->model->target.backend->device, "cpu") != 0) return 0;
  int64_t ns = core_distance_ns(), *least = &tuning->least_apart_ns;
  if (ns > 0 && (*least == 0 || ns < *least)) *least = ns;
  return ns;
}

/* The shared cache or another one: noise is far below twice the time. */
bool tune_is_near(const Tuning *tuning, int64_t apart_ns) {
  return apart_ns <= 2 * tuning->least_apart_ns;
}

/* A new one may take half of what is left, so that one which stalls leaves time
 * for others; that of a smaller batch, which is short, may take all. */
static bool run_probe(Tuning *tuning, BuiltProbe *probe, const char **out_why) {
  int64_t apart_ns = tune_core_distance(tuning), begin = child_now_ms();
  int64_t until_ms = tuning->until_ms;
  bool is_smaller = tuning->n_measured == 0 && tuning->n_rejected > 0;
  if (probe->aparts_ns.n == 0 && !is_smaller)
    tuning->until_ms -= tune_left_ms(tuning) / 2;
  tuning->is_late = false;
  bool ran = run_bundle(tuning, probe->bundle, "--profile",
                        file_in(tuning, "profile.csv"), probe->steps, out_why);
  tuning->until_ms = until_ms;
  tuning->is_slow = tuning->is_late;
  probe->took_ms = child_now_ms() - begin;
  vec_push(tuning->arena, &probe->aparts_ns,
           greater(apart_ns, tune_core_distance(tuning)));
  return ran;
}

static int near_runs(const Tuning *tuning, const BuiltProbe *probe) {
  int n = 0;
  for (int i = 0; i < probe->aparts_ns.n; i++)
    n += tune_is_near(tuning, probe->aparts_ns.data[i]);
  return n;
}

void tune_count_runs(const Tuning *tuning, int *out_near, int *out_far) {
  *out_near = *out_far = 0;
  for (int i = 0; i < tuning->built.n; i++) {
    int n = near_runs(tuning, &tuning->built.data[i]);
    *out_near += n;
    *out_far += tuning->built.data[i].aparts_ns.n - n;
  }
}

/* Short steps are measured more often: as many as take a quarter of what is
 * left, at the speed of the run before.  If that was wrong, this run counts. */
static void measure_more_steps(Tuning *tuning, BuiltProbe *probe) {
  enum { MANY = 30 };
  const char *why;
  BuiltProbe more = *probe;
  int64_t steps =
      probe->steps * (tune_left_ms(tuning) / 4) / (probe->took_ms + 1);
  more.steps = steps < MANY ? (int)steps : MANY;
  memset(&more.aparts_ns, 0, sizeof more.aparts_ns);
  if (more.steps >= 2 * probe->steps && run_probe(tuning, &more, &why))
    *probe = more;
}

bool tune_measure(Tuning *tuning, const Probe *probe, const char **out_why) {
  Arena *arena = tuning->arena;
  tuning->is_slow = false;
  int n = tuning->built.n;
  BuiltProbe built = {
      .bundle = file_in(tuning, arena_printf(arena, "bundle-%d", n)),
      .works = file_in(tuning, arena_printf(arena, "works-%d.csv", n)),
      .steps = TUNE_STEPS};
  if (!build(tuning, probe, built.bundle, built.works, out_why)) return false;
  *out_why = "it is held out";
  if (is_held_out(tuning, built.works)) return false;
  if (!run_probe(tuning, &built, out_why)) return false;
  measure_more_steps(tuning, &built);
  if (!collect(tuning, &built, out_why)) return false;
  vec_push(arena, &tuning->built, built);
  return true;
}

bool tune_wait_until_near(Tuning *tuning, int64_t needed_ms) {
  enum { PAUSE_MS = 200 };
  while (!tune_is_near(tuning, tune_core_distance(tuning))) {
    if (tool_is_stopped() || !tune_has_left(tuning, needed_ms + PAUSE_MS))
      return false;
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000}, NULL);
  }
  return true;
}

bool tune_measure_again(Tuning *tuning) {
  enum { ENOUGH = 5 };
  const char *why;
  bool is_any = false;
  for (int i = 0; i < tuning->built.n; i++) {
    BuiltProbe *probe = &tuning->built.data[i];
    int64_t needed_ms = probe->took_ms * 5 / 4;
    if (near_runs(tuning, probe) >= ENOUGH) continue;
    if (tool_is_stopped() || !tune_wait_until_near(tuning, needed_ms) ||
        !tune_has_left(tuning, needed_ms) || !run_probe(tuning, probe, &why) ||
        !collect(tuning, probe, &why))
      return false;
    is_any = true;
  }
  return is_any;
}

bool tune_build(Tuning *tuning, const Probe *probe, const char *bundle,
                const char **out_why) {
  return build(tuning, probe, bundle, file_in(tuning, "works.csv"), out_why);
}

bool tune_measure_links(Tuning *tuning, const Probe *probe,
                        const char **out_why) {
  const char *bundle = file_in(tuning, "bundle");
  const char *table = file_in(tuning, "links.csv"), *text;
  size_t n;
  if (!tune_build(tuning, probe, bundle, out_why)) return false;
  int64_t apart_ns = tune_core_distance(tuning), begin = child_now_ms();
  if (!run_bundle(tuning, bundle, "--links", table, 0, out_why)) return false;
  tuning->links_took_ms = child_now_ms() - begin;
  tuning->links_apart_ns = greater(apart_ns, tune_core_distance(tuning));
  Status status = file_read(tuning->arena, table, MOST_FILE_BYTES, &text, &n);
  if (status.code == STATUS_ok)
    status = file_replace(
        arena_printf(tuning->arena, "%s.links.csv", tuning->name), text, n);
  tuning->has_links = status.code == STATUS_ok;
  *out_why = status.message;
  return tuning->has_links;
}
