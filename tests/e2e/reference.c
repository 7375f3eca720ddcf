/*
 * reference.c -- helps reference.sh: it makes a checkpoint of recorded
 * parameters, and compares the gradients in a written one with the records.
 *
 *     reference list                   the records of records.def
 *     reference write MODEL.safetensors FOLDER
 *     reference write optimizers.safetensors FOLDER start/
 *     reference compare MODEL.safetensors FOLDER/step-00000001 first f32
 *     reference compare MODEL.safetensors FOLDER/step-00000010 ten bf16
 *     reference compare optimizers.safetensors FOLDER/step-00000050 CASE/
 *     reference losses MODEL.safetensors run.json bf16
 *
 * `write` makes the parameters and states of a record, or takes those of the
 * prefix.  Gradients: the model trains with sgd and momentum, so that after the
 * first step the moment is the gradient.
 *
 * In f32 the L2 error of each tensor may be that of tests/ops/tolerance.h for
 * whole models, or twice PyTorch's own.  In bf16 the error of a tensor has no
 * limit that suits all: it is what the model makes of roundings.  So there
 *
 *     each tensor may be off by twice PyTorch's worst of many throws,
 *     the mean of all tensors, each relative to what it is off in PyTorch on
 *         average, by LARGEST_SHARE of that of the throw where it is worst,
 *     the losses by twice their worst,
 *     and most elements of gradients and parameters must need 32 bits.
 *
 * One tensor may be off by much, but all together differ little from throw to
 * throw: the mean sees a quarter more than PyTorch's.
 */
#include "tests/e2e/checkpoints.h"
#include "tests/ops/tolerance.h"
#include "tests/unit/reference_files.h"

/* The limit on our mean error, relative to that of the worst run of PyTorch. */
#define LARGEST_SHARE 1.25

static void exhausted(void *user) {
  (void)user;
  exit(3);
}

static Given made_of(Arena *arena, const Recorded *recorded,
                     const StoredTensor *made, const char *path) {
  int64_t n;
  const double *spec = recorded_values(arena, recorded, made);
  Given given = {.path = path,
                 .rank = (int)recorded_elements(made) - 2,
                 .values = recorded_made(arena, recorded, path, &n)};
  for (int d = 0; d < given.rank; d++) given.size[d] = (int64_t)spec[d + 2];
  return given;
}

static Given stored_of(Arena *arena, const Recorded *recorded,
                       const StoredTensor *stored, const char *path) {
  Given given = {.path = path,
                 .rank = stored->rank,
                 .values = recorded_values(arena, recorded, stored)};
  for (int d = 0; d < given.rank; d++) given.size[d] = stored->size[d];
  return given;
}

static Status write_checkpoint(Arena *arena, const Recorded *recorded,
                               const char *folder, const char *prefix) {
  Given *given = ARENA_ARRAY(arena, Given, recorded->header.n_tensors);
  bool is_made = prefix == NULL;
  if (is_made) prefix = "made/";
  int n = 0;
  for (int i = 0; i < recorded->header.n_tensors; i++) {
    const StoredTensor *from = &recorded->header.tensors[i];
    if (strncmp(from->name, prefix, strlen(prefix)) != 0) continue;
    const char *path = from->name + strlen(prefix);
    given[n++] = (is_made ? made_of : stored_of)(arena, recorded, from, path);
  }
  return given_write(arena, folder, given, n);
}

typedef struct Comparison {
  Arena *arena;
  const Recorded *recorded;
  Checkpoint checkpoint;
  double worst;
  int n_compared, n_wrong;
} Comparison;

static void note(Comparison *c, const char *path, double off, double limit) {
  bool is_right = off >= 0 && off <= limit;
  if (!is_right) printf("%s: off by %.3g, allowed %.3g\n", path, off, limit);
  c->n_wrong += !is_right;
  c->worst = fmax(c->worst, off);
  c->n_compared++;
}

/* The prefix's tensors, stored whole, with those of the same path. */
static Status compare_stored(Comparison *c, const char *prefix) {
  for (int i = 0; i < c->recorded->header.n_tensors; i++) {
    const StoredTensor *wanted = &c->recorded->header.tensors[i];
    if (strncmp(wanted->name, prefix, strlen(prefix)) != 0) continue;
    const char *path = wanted->name + strlen(prefix);
    int64_t n = recorded_elements(wanted);
    double *got;
    TRY(stored_read(c->arena, &c->checkpoint, path, n, &got));
    note(c, path,
         relative_error(got, recorded_values(c->arena, c->recorded, wanted), n),
         tolerance_model(DT_f32));
  }
  return STATUS_OK;
}

/* ---- sketches ---- */

/* The tensors that the sketches of a prefix describe, and the places in a
 * record that hold PyTorch's own error: the column of error/PATH (none: not
 * compared in f32), the first column of half/PATH, the element of `half`. */
typedef struct Kind {
  const char *prefix;
  const char *stored; /* before the path, in a checkpoint */
  int error, half, share;
} Kind;

enum { NO_ERROR = -1 };
enum { HALF_WORST, HALF_TYPICAL, HALF_NORM, LOSS_WORST = 3 };

static const Kind gradients = {"grad/", "sgd.m/", 0, 0, 0},
                  first_steps = {"step/", "", NO_ERROR, 0, 1},
                  ten_steps = {"ten/", "", 1, 3, 2};

static const double *numbers_of(const Comparison *c, const char *prefix,
                                const char *path) {
  const StoredTensor *tensor = recorded_find(c->recorded, prefix, path);
  return tensor ? recorded_values(c->arena, c->recorded, tensor) : NULL;
}

/* How far the tensor of which `wanted` is the sketch is off, and the largest
 * and the typical error of PyTorch. */
typedef struct Errors {
  double off, largest, typical;
} Errors;

static Errors errors_of(const Comparison *c, const Kind *kind, DType dtype,
                        const StoredTensor *wanted, const double *got,
                        int64_t n) {
  const char *path = wanted->name + strlen(kind->prefix);
  double floor = kind == &gradients ? recorded_floor(c->arena, c->recorded) : 0;
  double off =
      recorded_distance(c->arena, c->recorded, wanted, path, floor, got, n);
  if (dtype == DT_f32) {
    const double *theirs = numbers_of(c, "error/", path);
    return (Errors){
        .off = off, .largest = theirs ? theirs[kind->error] : 0, .typical = 1};
  }
  const double *theirs = numbers_of(c, "half/", path);
  if (!theirs) return (Errors){.off = -1, .typical = 1};
  double norm = recorded_values(c->arena, c->recorded, wanted)[0];
  if (norm < 1e-6 * floor) norm = floor;
  if (norm > 0) off *= norm;
  theirs += kind->half;
  return (Errors){.off = off / theirs[HALF_NORM],
                  .largest = theirs[HALF_WORST],
                  .typical = theirs[HALF_TYPICAL]};
}

/* The number of f32 values that 16 bits would hold, too.  A gradient has some:
 * rows of a table that are read once. */
static int64_t count_short(const double *values, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++)
    count += values[i] != 0 &&
             bf16_to_float(bf16_from_float((float)values[i])) == values[i];
  return count;
}

static Status compare_kind(Comparison *c, const Kind *kind, DType dtype) {
  double share = 0;
  int n_compared = 0;
  int64_t n_numbers = 0, n_short = 0;
  for (int i = 0; i < c->recorded->header.n_tensors; i++) {
    const StoredTensor *wanted = &c->recorded->header.tensors[i];
    if (strncmp(wanted->name, kind->prefix, strlen(kind->prefix)) != 0)
      continue;
    const char *path = wanted->name + strlen(kind->prefix);
    int64_t n;
    double *got;
    if (!recorded_made(c->arena, c->recorded, path, &n))
      return status_make(STATUS_invalid, "no made/%s", path);
    TRY(stored_read(c->arena, &c->checkpoint,
                    arena_printf(c->arena, "%s%s", kind->stored, path), n,
                    &got));
    Errors errors = errors_of(c, kind, dtype, wanted, got, n);
    double least = dtype == DT_f32 ? tolerance_model(DT_f32) : 0;
    note(c, wanted->name, errors.off, fmax(least, 2 * errors.largest));
    share += errors.off / errors.typical;
    n_compared++;
    n_numbers += n;
    n_short += count_short(got, n);
  }
  /* The first steps of states are left out: a hidden state is rounded. */
  if (kind != &first_steps && n_short > n_numbers / 2)
    return status_make(STATUS_invalid, "%sslots hold numbers of 16 bits",
                       kind->prefix);
  if (dtype == DT_f32 || n_compared == 0) return STATUS_OK;
  share /= n_compared;
  double theirs = numbers_of(c, "half", "")[kind->share];
  printf("%s%.2g of %.2g  ", kind->prefix, share, theirs);
  if (!(share <= LARGEST_SHARE * theirs))
    return status_make(
        STATUS_invalid,
        "%sall are off by %.3g of PyTorch's, whose worst is %.3g", kind->prefix,
        share, theirs);
  return STATUS_OK;
}

static Status compare_sketches(Comparison *c, bool is_ten, DType dtype) {
  if (is_ten) return compare_kind(c, &ten_steps, dtype);
  TRY(compare_kind(c, &gradients, dtype));
  return dtype == DT_f32 ? STATUS_OK : compare_kind(c, &first_steps, dtype);
}

/* what: "first", "ten" or a prefix of whole tensors. */
static Status compare(Arena *arena, const Recorded *recorded,
                      const char *folder, const char *what, const char *dtype) {
  Comparison c = {.arena = arena, .recorded = recorded};
  bool is_ten = strcmp(what, "ten") == 0;
  TRY(checkpoint_open(arena, folder, &c.checkpoint));
  if (is_ten || strcmp(what, "first") == 0)
    TRY(compare_sketches(&c, is_ten,
                         strcmp(dtype, "bf16") == 0 ? DT_bf16 : DT_f32));
  else
    TRY(compare_stored(&c, what));
  checkpoint_close(&c.checkpoint);
  printf("%d tensors, worst relative L2 error %.3g\n", c.n_compared, c.worst);
  if (c.n_wrong || !c.n_compared)
    return status_make(STATUS_invalid, "%d tensors are wrong", c.n_wrong);
  return STATUS_OK;
}

/* ---- losses ---- */

static Status compare_losses(Arena *arena, const Recorded *recorded,
                             const char *path, const char *dtype) {
  Comparison c = {.arena = arena, .recorded = recorded};
  const double *wanted = numbers_of(&c, "loss", "");
  const double *theirs = numbers_of(&c, "half", "");
  double got[10];
  int n = 0;
  const char *text;
  size_t bytes;
  TRY(file_read(arena, path, 1 << 20, &text, &bytes));
  while (n < 10 && (text = strstr(text, "{\"step\":")) != NULL) {
    text = strstr(text, "\"loss\":");
    if (!text) break;
    got[n++] = strtod(text + strlen("\"loss\":"), NULL);
  }
  if (n < 10 || !wanted || !theirs)
    return status_make(STATUS_invalid, "no ten losses");
  bool is_half = strcmp(dtype, "bf16") == 0;
  double off = relative_error(got, wanted, 10);
  double limit = is_half ? 2 * theirs[LOSS_WORST] : tolerance_model(DT_f32);
  printf("%.3g\n", off);
  if (!(off <= limit))
    return status_make(STATUS_invalid, "losses are off by %.3g, allowed %.3g",
                       off, limit);
  return STATUS_OK;
}

static int list(void) {
#define RECORD(name, file, ways, attention) puts(#name "_small");
#include "tests/reference/records.def"
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "list") == 0) return list();
  if (argc < 4 || argc > 6) return 2;
  Memory *memory = memory_create(exhausted, NULL);
  Arena *arena = arena_create(memory);
  Recorded recorded;
  bool writes = strcmp(argv[1], "write") == 0;
  const char *what = argc > 4 ? argv[4] : NULL;
  if (!writes && !what) return 2;
  Status status = recorded_open(arena, argv[2], &recorded);
  if (status.code == STATUS_ok && writes)
    status = write_checkpoint(arena, &recorded, argv[3], what);
  else if (status.code == STATUS_ok && strcmp(argv[1], "losses") == 0)
    status = compare_losses(arena, &recorded, argv[3], what);
  else if (status.code == STATUS_ok)
    status =
        compare(arena, &recorded, argv[3], what, argc > 5 ? argv[5] : "f32");
  if (status.code != STATUS_ok) printf("reference: %s\n", status.message);
  memory_destroy(memory);
  return status.code == STATUS_ok ? 0 : 1;
}
