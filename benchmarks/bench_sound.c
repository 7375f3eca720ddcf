/*
 * bench_sound.c -- tries to catch `dnnc plan` lying: makes small random cases,
 * prices every plan that the language can say for them, and compares.
 *
 *     bench_sound [--stages] [--cases N] [--from SEED] [--state FILE]
 *                 [--json]
 *     bench_sound [--stages] --case SEED
 *     bench_sound --full MODEL CLUSTER RANKS [--plans N] [--seconds S]
 *
 *     --stages       ask `dnnc plan --search stages`, about plans with stages
 *                    too; where a case has more than --most, as many of them
 *     --stage-pins   ... and pins of the mesh, the schedule and the cuts
 *     --unlike       two groups of unlike devices or links in each case
 *     --search NAME  of `dnnc plan`, for another one than these
 *     --dnnc PATH    the compiler; else the one beside this program
 *     --most N       plans of a case (5000); every other case has a tenth
 *     --outside N    random plans with other lines, for each case (100)
 *     --verify N     ask `dnnc verify` about the plan of every N-th case (10)
 *     --effort N     of `dnnc plan`
 *     --threads N    that price plans (2)
 *     --out DIR      for the files of cases that fail (failed)
 *
 * A case depends on its seed, on --most and on these three alone.  Each is
 * checked in a process of its own, so a crash is a finding like any other. With
 * --state the results of cases are kept in a file, and a run goes on after the
 * last one.  Exit status 1: something that `dnnc plan` said is not true.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sound/sound.h"

enum { CASE_SECONDS = 1800 };

typedef struct Settings {
  const char *dnnc, *out, *state, *effort, *search; /* the last two or NULL */
  int64_t from, only, cases, outside, verify_every, threads; /* only: or -1 */
  int64_t plans, seconds;                                    /* of `full` */
  SoundFull full; /* without a model: cases */
  SoundLimits limits;
  bool is_json, is_shown;
  bool is_careful; /* price plan after plan, to see which one crashes */
} Settings;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

/* ---- files of a case ---- */

static const char *folder_of(const Settings *settings, Arena *arena,
                             uint64_t seed) {
  return arena_printf(arena, "%s/case-%llu", settings->out,
                      (unsigned long long)seed);
}

static void write_fault(Arena *arena, const char *folder, const char *plan) {
  const char *path = arena_printf(arena, "%s/fault.plan", folder);
  FILE *file = fopen(path, "w");
  if (!file || fputs(plan, file) < 0 || fclose(file) != 0) perror(path);
}

static void remove_folder(Arena *arena, const char *folder) {
  static const char *const names[] = {
      "model.dnn", "machines.cluster", "pins.plan", "found.plan",
      "output",    "messages",         "fault.plan"};
  for (int i = 0; i < ARRAY_LENGTH(names); i++)
    unlink(arena_printf(arena, "%s/%s", folder, names[i]));
  rmdir(folder);
}

static void print_case(const SoundCase *c) {
  printf("# seed %llu: %d ranks, %lld plans\n# model.dnn\n%s\n# "
         "machines.cluster\n%s\n",
         (unsigned long long)c->seed, c->ranks,
         (long long)sound_count(&c->space), c->model, c->cluster);
  if (c->pins) printf("# pins.plan\n%s\n", c->pins);
}

/* ---- one case ---- */

static void price(const Settings *settings, const SoundCase *c,
                  const char *const *texts, int n, SoundPrice *out) {
  Arena *arena = c->space.arena;
  if (!settings->is_careful) {
    sound_price(&c->loaded, texts, n, settings->limits.threads, out);
    return;
  }
  for (int i = 0; i < n; i++) {
    write_fault(arena, c->folder, texts[i]);
    sound_price(&c->loaded, &texts[i], 1, 1, &out[i]);
  }
}

typedef struct Pricer {
  const Settings *settings;
  const SoundCase *of;
} Pricer;

static void price_plans(void *user, const char *const *texts, int n,
                        SoundPrice *out) {
  const Pricer *pricer = user;
  price(pricer->settings, pricer->of, texts, n, out);
}

static void try_outside(const Settings *settings, const SoundCase *c,
                        SoundRow *row) {
  Arena *arena = c->space.arena;
  Choices *choices = choices_random(arena, ~c->seed);
  const char **texts = ARENA_ARRAY(arena, const char *, settings->outside);
  SoundPrice *prices = ARENA_ARRAY(arena, SoundPrice, settings->outside);
  while (row->n_outside < settings->outside) {
    texts[row->n_outside] = sound_outside(c, choices);
    if (!texts[row->n_outside]) break;
    row->n_outside++;
  }
  price(settings, c, texts, row->n_outside, prices);
  for (int i = 0; i < row->n_outside; i++)
    row->n_outside_fitting += sound_fits(&prices[i]);
  int best = sound_best(prices, row->n_outside);
  if (best >= 0) row->outside = prices[best].step;
  if (settings->is_shown && best >= 0)
    printf("# the fastest of other plans: %.6f ms\n%s\n",
           (double)row->outside * 1e-9, texts[best]);
}

/* Lines that may be written twice: of two about saving, each contradicts the
 * other where they overlap. */
static const char *repeatable_lines(Arena *arena, const char *lines) {
  Text out = text_create(arena);
  while (*lines) {
    size_t n = strcspn(lines, "\n") + 1;
    const char *word = lines + strspn(lines, " ");
    bool is_saving = !strncmp(word, "remat ", 6) || !strncmp(word, "keep ", 5);
    if (!is_saving) text_add_n(&out, lines, n);
    lines += n;
  }
  return text_string(&out);
}

static SoundEvidence evidence_of(const Settings *settings, const SoundCase *c,
                                 const SoundClaim *claim,
                                 const SoundPlans *all) {
  SoundEvidence e = {.prices = all->prices, .breaks = all->breaks, .n = all->n};
  if (!claim->plan) return e;
  const char *lines = repeatable_lines(c->space.arena, c->lines);
  const char *again =
      arena_printf(c->space.arena, "%s\nplan {\n%s}\n", claim->plan, lines);
  price(settings, c, &claim->plan, 1, &e.found);
  e.again = e.found;
  if (lines[0]) price(settings, c, &again, 1, &e.again);
  return e;
}

static void write_words(Arena *arena, const char *text, char *out) {
  snprintf(out, SOUND_WORDS, "%s", sound_words(arena, text));
}

static void count(Arena *arena, const SoundPlans *all, SoundRow *row) {
  int best = sound_best(all->prices, all->n);
  row->n = all->n;
  row->is_full = all->are_all;
  if (best >= 0) row->best = all->prices[best].step;
  if (best >= 0) write_words(arena, all->texts[best], row->best_words);
  for (int i = 0; i < all->n; i++) {
    row->n_legal += all->prices[i].is_legal;
    row->n_fitting += sound_fits(&all->prices[i]);
    row->n_staged += all->has_stages[i] && sound_fits(&all->prices[i]);
  }
}

/* The dims of the model in small: what is played takes no time. */
static void add_small_sizes(Arena *arena, const char *model, SoundWords *out) {
  enum { SMALL = 8 };
  for (const char *at = model; at && *at != '\n'; at = strchr(at, ',')) {
    at += strspn(at, ", ");
    if (!strncmp(at, "dim ", 4)) at += 4;
    int n = (int)strcspn(at, " ");
    int64_t size = atoll(strchr(at, '=') + 1);
    bool is_small = size <= SMALL || (n == 1 && strchr("BYX", *at));
    if (!is_small)
      vec_push(arena, out, arena_printf(arena, "%.*s=%d", n, at, SMALL));
    if (!memchr(at, ',', strcspn(at, "\n"))) break;
  }
}

static SoundVerified verify(const Settings *settings, const SoundCase *c) {
  Arena *arena = c->space.arena;
  SoundWords words = {0};
  const char *output, *messages;
  vec_push(arena, &words, settings->dnnc);
  vec_push(arena, &words, "verify");
  vec_push(arena, &words, c->model_path);
  add_small_sizes(arena, c->model, &words);
  vec_push(arena, &words, "--plan");
  vec_push(arena, &words, arena_printf(arena, "%s/found.plan", c->folder));
  vec_push(arena, &words, NULL);
  int code = sound_run(arena, words.data, c->folder, &output, &messages);
  bool is_refused = code == 1 && strstr(messages, "error: ");
  if (settings->is_shown)
    printf("# verify: %d\n%s%s\n", code, output, messages);
  return code == 0    ? VERIFIED_equal
         : is_refused ? VERIFIED_refused
                      : VERIFIED_wrong;
}

static const char *option_of(const SoundCase *c) {
  return !c->has_stages         ? ""
         : c->space.pins_stages ? " --stage-pins"
                                : " --stages";
}

static void print_findings(const Settings *settings, const SoundCase *c,
                           const SoundClaim *claim, const SoundPlans *all,
                           const SoundEvidence *e, const SoundFinding *findings,
                           int n) {
  Arena *arena = c->space.arena;
  for (int i = 0; i < n; i++) {
    int plan = findings[i].plan;
    const char *text = plan < 0 ? claim->plan : all->texts[plan];
    const SoundPrice *p = plan < 0 ? &e->found : &e->prices[plan];
    printf("seed %llu: %s\n", (unsigned long long)c->seed,
           sound_fault_text(findings[i].fault));
    printf("  exit code %d, step %lld ps, floor %lld ps, bound %lld ps\n",
           claim->exit_code, (long long)claim->step, (long long)claim->floor,
           (long long)claim->bound);
    if (text)
      printf("  this plan: step %lld ps, %lld of %lld bytes\n%s\n",
             (long long)p->step, (long long)p->peak, (long long)p->memory,
             text);
    if (text) write_fault(arena, c->folder, text);
  }
  if (claim->messages[0]) printf("%s\n", claim->messages);
  print_case(c);
  printf("the files are in %s; repeat with: bench_sound%s%s%s%s --case %llu "
         "--most %lld\n\n",
         c->folder, option_of(c),
         settings->limits.are_unlike ? " --unlike" : "",
         settings->search ? " --search " : "",
         settings->search ? settings->search : "", (unsigned long long)c->seed,
         (long long)settings->limits.most);
}

static void show(const SoundCase *c, const SoundClaim *claim,
                 const SoundPlans *all) {
  int best = sound_best(all->prices, all->n);
  print_case(c);
  printf("# exit code %d, step %.6f ms\n%s%s\n", claim->exit_code,
         (double)claim->step * 1e-9, claim->plan ? claim->plan : "",
         claim->messages);
  if (best >= 0)
    printf("# the fastest of %d plans: %.6f ms\n%s\n", all->n,
           (double)all->prices[best].step * 1e-9, all->texts[best]);
}

static SoundRow row_of(const SoundCase *c, const SoundClaim *claim) {
  return (SoundRow){.seed = c->seed,
                    .ranks = c->ranks,
                    .has_pins = c->lines[0] || c->space.is_mesh_pinned,
                    .has_limit = c->has_limit,
                    .are_unequal = c->are_unequal,
                    .is_early = c->is_early,
                    .is_unsupported = claim->is_unsupported,
                    .exit_code = claim->exit_code,
                    .found = claim->step,
                    .floor = claim->floor,
                    .bound = claim->has_bound ? claim->bound : 0,
                    .n_eliminated = claim->n_eliminated,
                    .n_engine = claim->n_engine,
                    .seconds = claim->seconds};
}

static void add_option(const char **options, int *n, const char *name,
                       const char *value) {
  if (!value) return;
  options[(*n)++] = name;
  options[(*n)++] = value;
}

static SoundRow check_case(const Settings *settings, Arena *arena,
                           uint64_t seed) {
  const char *folder = folder_of(settings, arena, seed);
  const char *options[4];
  int n_options = 0;
  add_option(options, &n_options, "--search", settings->search);
  add_option(options, &n_options, "--effort", settings->effort);
  SoundFinding findings[N_FAULTS];
  file_make_dirs(folder);
  const SoundCase *c = sound_case(arena, seed, folder, &settings->limits);
  SoundClaim claim = sound_ask(arena, settings->dnnc, c, options, n_options);
  Pricer pricer = {settings, c};
  SoundPlans all = sound_plans(c, settings->limits.most, price_plans, &pricer);
  SoundEvidence e = evidence_of(settings, c, &claim, &all);
  int n = sound_compare(&claim, &e, findings);
  SoundRow row = row_of(c, &claim);
  count(arena, &all, &row);
  if (claim.plan) write_words(arena, claim.plan, row.found_words);
  if (settings->is_shown) show(c, &claim, &all);
  if (!c->has_stages) try_outside(settings, c, &row);
  bool is_asked = settings->verify_every > 0 &&
                  seed % (uint64_t)settings->verify_every == 0;
  if (claim.plan && is_asked) row.verified = verify(settings, c);
  if (row.verified == VERIFIED_wrong)
    findings[n++] = (SoundFinding){FAULT_not_equal, -1};
  bool is_forced = settings->search && !strcmp(settings->search, "engine");
  if (is_forced && claim.n_eliminated > 0)
    findings[n++] = (SoundFinding){FAULT_not_forced, -1};
  for (int i = 0; i < n; i++) row.faults |= 1u << findings[i].fault;
  if (n > 0) print_findings(settings, c, &claim, &all, &e, findings, n);
  if (n == 0) remove_folder(arena, folder);
  return row;
}

/* ---- a process for each case ---- */

static bool check_in_child(const Settings *settings, uint64_t seed,
                           SoundRow *out) {
  int ends[2], code;
  if (pipe(ends) != 0) abort();
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) abort();
  if (child == 0) {
    close(ends[0]);
    alarm(CASE_SECONDS);
    Arena *arena = arena_create(memory_create(no_memory, NULL));
    SoundRow row = check_case(settings, arena, seed);
    fflush(NULL);
    _exit(write(ends[1], &row, sizeof row) != sizeof row);
  }
  close(ends[1]);
  bool is_read = read(ends[0], out, sizeof *out) == sizeof *out;
  close(ends[0]);
  waitpid(child, &code, 0);
  if (!is_read && WIFEXITED(code) && WEXITSTATUS(code) == 2) exit(2);
  return is_read;
}

static SoundRow run_case(const Settings *settings, uint64_t seed) {
  SoundRow row;
  if (check_in_child(settings, seed, &row)) return row;
  Settings careful = *settings;
  careful.is_careful = true;
  bool is_repeated = !check_in_child(&careful, seed, &row);
  printf("seed %llu: %s%s; the files are in %s/case-%llu%s\n",
         (unsigned long long)seed, sound_fault_text(FAULT_compiler),
         is_repeated ? "" : ", but not when plans are priced one by one",
         settings->out, (unsigned long long)seed,
         is_repeated ? ", the plan is fault.plan" : "");
  if (is_repeated) row = (SoundRow){.seed = seed, .exit_code = -1};
  row.faults |= 1u << FAULT_compiler;
  return row;
}

/* ---- the run ---- */

static void read_state(const Settings *settings, Arena *arena,
                       SoundRows *rows) {
  const char *text;
  size_t n;
  if (!settings->state || !file_exists(settings->state)) return;
  if (file_read(arena, settings->state, 1 << 28, &text, &n).code != STATUS_ok)
    return;
  for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
    SoundRow row;
    if (sound_read_row(text, &row)) vec_push(arena, rows, row);
  }
}

static void append_state(const Settings *settings, Arena *arena,
                         const SoundRow *row) {
  if (!settings->state) return;
  Text text = text_create(arena);
  if (!file_exists(settings->state)) text_add(&text, sound_columns);
  sound_write_row(&text, row);
  FILE *file = fopen(settings->state, "a");
  if (!file || fputs(text_string(&text), file) < 0 || fclose(file) != 0) {
    perror(settings->state);
    exit(2);
  }
}

static void show_progress(const SoundRows *rows, int64_t cases) {
  int failed = 0;
  if (!isatty(STDERR_FILENO)) return;
  for (int i = 0; i < rows->n; i++) failed += rows->data[i].faults != 0;
  fprintf(stderr, "\r%d of %lld cases, %d failed ", rows->n, (long long)cases,
          failed);
  if (rows->n == cases) fprintf(stderr, "\r%40s\r", "");
}

static int run_cases(const Settings *settings, Arena *arena) {
  SoundRows rows = {0};
  Text out = text_create(arena);
  int failed = 0;
  read_state(settings, arena, &rows);
  uint64_t seed = (uint64_t)settings->from;
  if (rows.n > 0) seed = rows.data[rows.n - 1].seed + 1;
  for (; rows.n < settings->cases; seed++) {
    SoundRow row = run_case(settings, seed);
    append_state(settings, arena, &row);
    vec_push(arena, &rows, row);
    show_progress(&rows, settings->cases);
  }
  if (settings->is_json)
    sound_print_json(&out, &rows);
  else
    sound_print_table(&out, &rows);
  fputs(text_string(&out), stdout);
  rmdir(settings->out); /* unless a case failed */
  for (int i = 0; i < rows.n; i++) failed += rows.data[i].faults != 0;
  return failed > 0;
}

/* ---- the command line ---- */

static int usage(void) {
  fprintf(stderr,
          "usage: bench_sound [--stages] [--cases N] [--from SEED] [--state "
          "FILE] [--json]\n       bench_sound [--stages] --case SEED\n       "
          "bench_sound --full "
          "MODEL CLUSTER RANKS [--plans N] [--seconds S]\n");
  return 2;
}

/* An option with one value; false: there is none of this name. */
static bool read_option(Settings *s, const char *name, const char *value) {
  const struct {
    const char *name;
    int64_t *number;
  } numbers[] = {{"--cases", &s->cases},
                 {"--from", &s->from},
                 {"--most", &s->limits.most},
                 {"--outside", &s->outside},
                 {"--verify", &s->verify_every},
                 {"--plans", &s->plans},
                 {"--threads", &s->threads},
                 {"--seconds", &s->seconds},
                 {"--case", &s->only}};
  const struct {
    const char *name;
    const char **text;
  } texts[] = {{"--dnnc", &s->dnnc},
               {"--out", &s->out},
               {"--state", &s->state},
               {"--search", &s->search},
               {"--effort", &s->effort}};
  for (int i = 0; i < ARRAY_LENGTH(numbers); i++)
    if (!strcmp(name, numbers[i].name)) {
      *numbers[i].number = atoll(value);
      return true;
    }
  for (int i = 0; i < ARRAY_LENGTH(texts); i++)
    if (!strcmp(name, texts[i].name)) {
      *texts[i].text = value;
      return true;
    }
  return false;
}

static bool read_options(Settings *s, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--json")) {
      s->is_json = true;
    } else if (!strcmp(argv[i], "--unlike")) {
      s->limits.are_unlike = true;
    } else if (!strcmp(argv[i], "--stages")) {
      s->limits.has_stages = true;
    } else if (!strcmp(argv[i], "--stage-pins")) {
      s->limits.has_stages = s->limits.pins_stages = true;
    } else if (!strcmp(argv[i], "--full") && i + 3 < argc) {
      s->full.model = argv[i + 1];
      s->full.cluster = argv[i + 2];
      s->full.ranks = atoi(argv[i + 3]);
      i += 3;
    } else if (i + 1 >= argc || !read_option(s, argv[i], argv[i + 1])) {
      return false;
    } else {
      i++;
    }
  }
  if (s->limits.has_stages && !s->search) s->search = "stages";
  s->limits.least = s->limits.most / 10;
  s->limits.threads = (int)s->threads;
  s->is_shown = s->only >= 0;
  if (s->is_shown) s->from = s->only;
  if (s->is_shown) s->cases = 1;
  return s->limits.most > 0 && s->threads > 0;
}

/* The compiler beside this program. */
static const char *find_dnnc(Arena *arena) {
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n < 0) return "dnnc";
  path[n] = '\0';
  return arena_printf(arena, "%.*s/dnnc", (int)(strrchr(path, '/') - path),
                      path);
}

static int run_full(const Settings *settings, Arena *arena) {
  SoundFull full = settings->full;
  full.dnnc = settings->dnnc;
  full.folder = arena_printf(arena, "%s/full", settings->out);
  full.effort = settings->effort;
  full.threads = settings->limits.threads;
  full.plans = settings->plans;
  full.seconds = (double)settings->seconds;
  file_make_dirs(full.folder);
  int code = sound_full(arena, &full);
  if (code == 0) remove_folder(arena, full.folder);
  rmdir(settings->out);
  return code;
}

static int run(Arena *arena, int argc, char **argv) {
  Settings settings = {.out = "failed",
                       .from = 1,
                       .only = -1,
                       .cases = 1000,
                       .plans = 1000,
                       .seconds = 60,
                       .outside = 100,
                       .verify_every = 10,
                       .threads = 2,
                       .limits = {.most = 5000}};
  if (!read_options(&settings, argc, argv)) return usage();
  if (!settings.dnnc) settings.dnnc = find_dnnc(arena);
  if (access(settings.dnnc, X_OK) != 0) {
    perror(settings.dnnc);
    return 2;
  }
  return settings.full.model ? run_full(&settings, arena)
                             : run_cases(&settings, arena);
}

int main(int argc, char **argv) {
  Memory *memory = memory_create(no_memory, NULL);
  int code = run(arena_create(memory), argc, argv);
  memory_destroy(memory);
  return code;
}
