/*
 * profile.c -- reads profiles and finds launches in them.
 *
 * A profile comes from another run, perhaps from another machine, so nothing in
 * it is trusted: each cell has its range, and sums of times within it do not
 * overflow.
 */
#include "price/profile.h"

#include "price/csv.h"

#include <stdlib.h>
#include <string.h>

enum { HEX_DIGITS = 16 };

#define MOST_CORES INT64_C(1000000)
#define MOST_PS    INT64_C(1000000000000000) /* 1,000 seconds */
#define MOST_RUNS  INT64_C(1000000000000000)

typedef struct Launch {
  const char *path;
  Phase phase;
  uint64_t kernel;
  int cores;
  Ps ps;
  Span span; /* its line */
} Launch;

/* All launches of a kernel with one number of cores. */
typedef struct Kernel {
  VEC(Ps) times;
  Ps median;
} Kernel;

struct Profile {
  VEC(Launch) launches;
  Map *by_launch; /* hash of path, phase, kernel, cores -> index, plus 1 */
  Map *by_kernel; /* hash of kernel, cores -> Kernel */
};

/* ---- hashes: 64 bits, so that no two launches meet by chance ---- */

static const void *kernel_hash(uint64_t kernel, int cores) {
  return (const void *)(uintptr_t)hash_bytes(&kernel, sizeof kernel,
                                             (uint64_t)cores);
}

static const void *launch_hash(const ProfileKey *key) {
  uint64_t h = (uint64_t)(uintptr_t)kernel_hash(key->kernel, key->cores);
  h = hash_bytes(key->path, strlen(key->path) + 1, h + (uint64_t)key->phase);
  return (const void *)(uintptr_t)h;
}

typedef struct Reader {
  Csv csv;
  Profile *profile;
} Reader;

/* ---- one launch ---- */

static bool read_phase(Reader *r, const CsvCell *cell, Phase *out) {
  for (int i = 0; i < N_PHASES; i++)
    if (strcmp(cell->text, phase_name((Phase)i)) == 0) {
      *out = (Phase)i;
      return true;
    }
  return csv_wrong(&r->csv, cell, "phase", "forward, dgrad, wgrad or update");
}

static bool read_kernel(Reader *r, const CsvCell *cell, uint64_t *out) {
  static const char digits[] = "0123456789abcdef";
  *out = 0;
  size_t n = strspn(cell->text, digits);
  if (n != HEX_DIGITS || cell->text[n])
    return csv_wrong(&r->csv, cell, "kernel", "16 hex digits");
  for (int i = 0; i < HEX_DIGITS; i++)
    *out = *out << 4 | (uint64_t)(strchr(digits, cell->text[i]) - digits);
  return true;
}

static bool read_launch(Reader *r, const CsvCell *cells, Launch *out) {
  int64_t cores, runs;
  out->path = cells[0].text;
  bool is_right = read_phase(r, &cells[1], &out->phase);
  is_right &= read_kernel(r, &cells[2], &out->kernel);
  is_right &= csv_integer(&r->csv, &cells[3], "cores", 1, MOST_CORES, &cores);
  is_right &= csv_integer(&r->csv, &cells[4], "ps", 0, MOST_PS, &out->ps);
  is_right &= csv_integer(&r->csv, &cells[5], "runs", 1, MOST_RUNS, &runs);
  out->cores = (int)cores;
  return is_right;
}

static void add_launch(Reader *r, const Launch *launch) {
  Profile *profile = r->profile;
  ProfileKey key = {launch->path, launch->phase, launch->kernel, launch->cores};
  const void *hash = launch_hash(&key);
  int before = (int)(intptr_t)map_get(profile->by_launch, hash);
  if (before) {
    Diag *d =
        diag(r->csv.diags, DIAG_profile_twice, launch->span, launch->path);
    diag_note(d, profile->launches.data[before - 1].span,
              "the first one is here");
    return;
  }
  vec_push(r->csv.arena, &profile->launches, *launch);
  map_put(profile->by_launch, hash, (void *)(intptr_t)profile->launches.n);
  hash = kernel_hash(launch->kernel, launch->cores);
  Kernel *kernel = map_get(profile->by_kernel, hash);
  if (!kernel) {
    kernel = ARENA_NEW(r->csv.arena, Kernel);
    map_put(profile->by_kernel, hash, kernel);
  }
  vec_push(r->csv.arena, &kernel->times, launch->ps);
}

static void read_line(void *user, const CsvCell *cells, Span line) {
  Reader *r = user;
  Launch launch = {.span = line};
  if (read_launch(r, cells, &launch)) add_launch(r, &launch);
}

static int by_value(const void *a, const void *b) {
  Ps x = *(const Ps *)a, y = *(const Ps *)b;
  return (x > y) - (x < y);
}

static void find_medians(Profile *profile) {
  for (int i = 0; i < map_size(profile->by_kernel); i++) {
    Kernel *kernel = map_value_at(profile->by_kernel, i);
    qsort(kernel->times.data, (size_t)kernel->times.n, sizeof(Ps), by_value);
    kernel->median = kernel->times.data[(kernel->times.n - 1) / 2];
  }
}

Profile *profile_read(Arena *arena, Diags *diags, const Source *source) {
  Profile *profile = ARENA_NEW(arena, Profile);
  Reader r = {.csv = {.arena = arena,
                      .diags = diags,
                      .source = source,
                      .what = "profile",
                      .header = "path,phase,kernel,cores,ps,runs",
                      .help = "'dnnc run MODEL --profile FILE' writes a "
                              "profile"},
              .profile = profile};
  profile->by_launch = map_create(arena);
  profile->by_kernel = map_create(arena);
  if (!csv_read(&r.csv, read_line, &r)) return NULL;
  find_medians(profile);
  return profile;
}

int profile_launches(const Profile *profile) {
  return profile->launches.n;
}

int profile_cores(const Profile *profile) {
  int cores = profile->launches.data[0].cores;
  for (int i = 1; i < profile->launches.n; i++)
    if (profile->launches.data[i].cores != cores) return 0;
  return cores;
}

bool profile_find(const Profile *profile, const ProfileKey *key, Ps *out) {
  int launch = (int)(intptr_t)map_get(profile->by_launch, launch_hash(key));
  if (launch) {
    *out = profile->launches.data[launch - 1].ps;
    return true;
  }
  const Kernel *kernel =
      map_get(profile->by_kernel, kernel_hash(key->kernel, key->cores));
  if (kernel) *out = kernel->median;
  return kernel != NULL;
}
