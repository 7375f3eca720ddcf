/*
 * profile.c -- reads profiles and finds launches in them.
 *
 * A profile comes from another run, perhaps from another machine, so nothing in
 * it is trusted: each cell has its range, and sums of times within it do not
 * overflow.  Lines end with LF or CR LF; a cell in quotes may have commas, and
 * quotes that are doubled.
 */
#include "passes/plan/profile.h"

#include <stdlib.h>
#include <string.h>

#define HEADER          "path,phase,kernel,cores,ps,runs"
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

enum { N_CELLS = 6, LONGEST_LINE = 1 << 16, HEX_DIGITS = 16 };

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

/* ---- lines and cells ---- */

typedef struct Reader {
  Arena *arena;
  Diags *diags;
  const Source *source;
  Profile *profile;
  int errors_before;
} Reader;

typedef struct Cell {
  const char *text; /* without quotes */
  Span span;
} Cell;

static Span span_of(const Reader *r, const char *at, const char *end) {
  return (Span){r->source, (uint32_t)(at - r->source->text),
                (uint32_t)(end - r->source->text)};
}

/* The first byte that is no text; NULL: all is. */
static const char *find_byte(const char *at, const char *end) {
  while (at < end) {
    unsigned char c = (unsigned char)*at;
    int n = c < 0x20 || c == 0x7f ? 0 : text_utf8_length(at);
    if (n == 0 || n > end - at) return at;
    at += n;
  }
  return NULL;
}

/* Reads a cell in quotes up to the closing one; NULL: there is none. */
static const char *read_quoted(Reader *r, const char *at, const char *end,
                               Cell *out) {
  Text text = text_create(r->arena);
  const char *begin = at++;
  for (; at < end; at++) {
    if (*at == '"' && (at + 1 == end || at[1] != '"')) break;
    at += *at == '"';
    text_add_n(&text, at, 1);
  }
  if (at >= end) return NULL;
  *out = (Cell){text_string(&text), span_of(r, begin, at + 1)};
  return at + 1;
}

/* At most N_CELLS are kept; the result is how many there are, or -1 after a
 * message. */
static int read_cells(Reader *r, const char *at, const char *end,
                      Cell cells[N_CELLS]) {
  for (int n = 0;; at++) {
    const char *begin = at;
    Cell cell;
    if (at < end && *at == '"') {
      at = read_quoted(r, at, end, &cell);
    } else {
      while (at < end && *at != ',') at++;
      cell.text = arena_printf(r->arena, "%.*s", (int)(at - begin), begin);
      cell.span = span_of(r, begin, at);
    }
    if (!at || (at < end && *at != ',')) {
      diag(r->diags, DIAG_profile_quote, span_of(r, begin, end));
      return -1;
    }
    if (n < N_CELLS) cells[n] = cell;
    n++;
    if (at == end) return n;
  }
}

/* ---- one launch ---- */

static bool cell_is_wrong(Reader *r, const Cell *cell, const char *column,
                          const char *what) {
  diag(r->diags, DIAG_profile_cell, cell->span, column, cell->text, what);
  return false;
}

static bool read_phase(Reader *r, const Cell *cell, Phase *out) {
  for (int i = 0; i < N_PHASES; i++)
    if (strcmp(cell->text, phase_name((Phase)i)) == 0) {
      *out = (Phase)i;
      return true;
    }
  return cell_is_wrong(r, cell, "phase", "forward, dgrad, wgrad or update");
}

static bool read_kernel(Reader *r, const Cell *cell, uint64_t *out) {
  static const char digits[] = "0123456789abcdef";
  *out = 0;
  size_t n = strspn(cell->text, digits);
  if (n != HEX_DIGITS || cell->text[n])
    return cell_is_wrong(r, cell, "kernel", "16 hex digits");
  for (int i = 0; i < HEX_DIGITS; i++)
    *out = *out << 4 | (uint64_t)(strchr(digits, cell->text[i]) - digits);
  return true;
}

static bool read_integer(Reader *r, const Cell *cell, const char *column,
                         int64_t least, int64_t most, int64_t *out) {
  const char *at = cell->text;
  *out = 0;
  while (*at >= '0' && *at <= '9' && *out <= most)
    *out = *out * 10 + (*at++ - '0');
  if (at > cell->text && !*at && *out >= least && *out <= most) return true;
  return cell_is_wrong(r, cell, column,
                       arena_printf(r->arena, "an integer from %lld to %s",
                                    (long long)least,
                                    text_with_commas(r->arena, most)));
}

static bool read_launch(Reader *r, const Cell cells[N_CELLS], Launch *out) {
  int64_t cores, runs;
  out->path = cells[0].text;
  bool is_right = read_phase(r, &cells[1], &out->phase);
  is_right &= read_kernel(r, &cells[2], &out->kernel);
  is_right &= read_integer(r, &cells[3], "cores", 1, MOST_CORES, &cores);
  is_right &= read_integer(r, &cells[4], "ps", 0, MOST_PS, &out->ps);
  is_right &= read_integer(r, &cells[5], "runs", 1, MOST_RUNS, &runs);
  out->cores = (int)cores;
  return is_right;
}

static void add_launch(Reader *r, const Launch *launch) {
  Profile *profile = r->profile;
  ProfileKey key = {launch->path, launch->phase, launch->kernel, launch->cores};
  const void *hash = launch_hash(&key);
  int before = (int)(intptr_t)map_get(profile->by_launch, hash);
  if (before) {
    Diag *d = diag(r->diags, DIAG_profile_twice, launch->span, launch->path);
    diag_note(d, profile->launches.data[before - 1].span,
              "the first one is here");
    return;
  }
  vec_push(r->arena, &profile->launches, *launch);
  map_put(profile->by_launch, hash, (void *)(intptr_t)profile->launches.n);
  hash = kernel_hash(launch->kernel, launch->cores);
  Kernel *kernel = map_get(profile->by_kernel, hash);
  if (!kernel) {
    kernel = ARENA_NEW(r->arena, Kernel);
    map_put(profile->by_kernel, hash, kernel);
  }
  vec_push(r->arena, &kernel->times, launch->ps);
}

static void read_line(Reader *r, const char *at, const char *end) {
  Cell cells[N_CELLS];
  Launch launch = {.span = span_of(r, at, end)};
  const char *byte = find_byte(at, end);
  if (end - at > LONGEST_LINE) {
    diag(r->diags, DIAG_profile_line, span_of(r, at, at + 1), LONGEST_LINE);
    return;
  }
  if (byte) {
    diag(r->diags, DIAG_profile_byte, span_of(r, byte, byte + 1),
         (int)(unsigned char)*byte);
    return;
  }
  int n = read_cells(r, at, end, cells);
  if (n < 0) return;
  if (n != N_CELLS)
    diag(r->diags, DIAG_profile_cells, launch.span, n);
  else if (read_launch(r, cells, &launch))
    add_launch(r, &launch);
}

/* ---- all of it ---- */

static bool is_header(const char *at, const char *end) {
  return (size_t)(end - at) == strlen(HEADER) &&
         memcmp(at, HEADER, strlen(HEADER)) == 0;
}

static void read_header(Reader *r, const char *at, const char *end) {
  if (is_header(at, end)) return;
  Diag *d = diag(r->diags, DIAG_profile_header, span_of(r, at, end));
  diag_help(d, "'dnnc run MODEL --profile FILE' writes a profile");
}

/* A wrong first line is told alone. */
static void read_lines(Reader *r) {
  const char *at = r->source->text, *end = at + r->source->n;
  size_t mark = strlen(BYTE_ORDER_MARK);
  if (r->source->n >= mark && memcmp(at, BYTE_ORDER_MARK, mark) == 0)
    at += mark;
  for (bool is_first = true; at < end; is_first = false) {
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    const char *next = line_end ? line_end + 1 : end;
    if (!line_end) line_end = end;
    if (line_end > at && line_end[-1] == '\r') line_end--;
    if (is_first)
      read_header(r, at, line_end);
    else if (line_end > at)
      read_line(r, at, line_end);
    if (is_first && diags_errors(r->diags) > r->errors_before) return;
    at = next;
  }
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
  Reader r = {arena, diags, source, profile, diags_errors(diags)};
  profile->by_launch = map_create(arena);
  profile->by_kernel = map_create(arena);
  read_lines(&r);
  if (profile->launches.n == 0 && diags_errors(diags) == r.errors_before)
    diag(diags, DIAG_profile_empty, SPAN_FILE(source));
  if (diags_errors(diags) > r.errors_before) return NULL;
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
