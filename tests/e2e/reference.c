/*
 * reference.c -- the helper of reference.sh: makes a checkpoint of recorded
 * parameters, and compares the gradients in a written one with the records.
 *
 *     reference write MODEL.safetensors FOLDER [PREFIX]
 *     reference compare MODEL.safetensors FOLDER/step-00000001
 *     reference compare MODEL.safetensors FOLDER/step-00000050 PREFIX
 *
 * `write` takes the records PREFIXpath, "param/" and "state/" without one. With
 * a prefix, `compare` compares the records PREFIXpath with what is stored as
 * `path`. Without one it compares gradients: the model trains with sgd and
 * momentum, so that after the first step the moment is the gradient.  The L2
 * error of each tensor may be 1e-5, or twice what PyTorch's own f32 is off
 * where that is recorded and more.
 */
#include "tests/e2e/checkpoints.h"
#include "tests/unit/reference_files.h"

static void exhausted(void *user) {
  (void)user;
  exit(3);
}

static Status write_checkpoint(Arena *arena, const Recorded *recorded,
                               const char *folder, const char *prefix) {
  Given *given = ARENA_ARRAY(arena, Given, recorded->header.n_tensors);
  int n = 0;
  for (int i = 0; i < recorded->header.n_tensors; i++) {
    const StoredTensor *from = &recorded->header.tensors[i];
    bool is_state = !*prefix && strncmp(from->name, "state/", 6) == 0;
    const char *taken = *prefix ? prefix : is_state ? "state/" : "param/";
    if (strncmp(from->name, taken, strlen(taken)) != 0) continue;
    Given *to = &given[n++];
    *to = (Given){.path = from->name + strlen(taken),
                  .rank = from->rank,
                  .values = recorded_values(arena, recorded, from)};
    for (int d = 0; d < from->rank; d++) to->size[d] = from->size[d];
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

static Status compare_one(Comparison *c, const StoredTensor *wanted,
                          const char *path, double floor, double limit) {
  int64_t n = recorded_elements(wanted);
  double *got;
  TRY(stored_read(c->arena, &c->checkpoint, path, n, &got));
  double off = error_above(floor, got,
                           recorded_values(c->arena, c->recorded, wanted), n);
  bool is_right = off <= limit;
  if (!is_right) printf("%s: off by %.3g, allowed %.3g\n", path, off, limit);
  c->n_wrong += !is_right;
  c->worst = fmax(c->worst, off);
  c->n_compared++;
  return STATUS_OK;
}

/* A tensor may be off by twice what PyTorch's is in f32, where that is known:
 * f32_error/PATH of a gradient, else f32_error_PREFIX/PATH. */
static double limit_of(const Comparison *c, const char *prefix,
                       const char *path) {
  bool is_gradient = strcmp(prefix, "grad/") == 0;
  const char *name = is_gradient
                         ? "f32_error/"
                         : arena_printf(c->arena, "f32_error_%s", prefix);
  const StoredTensor *error = recorded_find(c->recorded, name, path);
  if (!error) return 1e-5;
  return fmax(1e-5, 2 * recorded_values(c->arena, c->recorded, error)[0]);
}

static Status compare(Arena *arena, const Recorded *recorded,
                      const char *folder, const char *prefix) {
  Comparison c = {.arena = arena, .recorded = recorded};
  bool is_gradient = strcmp(prefix, "grad/") == 0;
  double floor = is_gradient ? recorded_floor(arena, recorded) : 0;
  TRY(checkpoint_open(arena, folder, &c.checkpoint));
  for (int i = 0; i < recorded->header.n_tensors; i++) {
    const StoredTensor *wanted = &recorded->header.tensors[i];
    if (strncmp(wanted->name, prefix, strlen(prefix)) != 0) continue;
    const char *path = wanted->name + strlen(prefix);
    const char *stored =
        is_gradient ? arena_printf(arena, "sgd.m/%s", path) : path;
    TRY(compare_one(&c, wanted, stored, floor, limit_of(&c, prefix, path)));
  }
  checkpoint_close(&c.checkpoint);
  printf("%d tensors, worst relative L2 error %.3g\n", c.n_compared, c.worst);
  if (c.n_wrong || !c.n_compared)
    return status_make(STATUS_invalid, "%d tensors are wrong", c.n_wrong);
  return STATUS_OK;
}

int main(int argc, char **argv) {
  if (argc != 4 && argc != 5) return 2;
  Memory *memory = memory_create(exhausted, NULL);
  Arena *arena = arena_create(memory);
  Recorded recorded;
  bool writes = strcmp(argv[1], "write") == 0;
  const char *prefix = argc == 5 ? argv[4] : writes ? "" : "grad/";
  Status status = recorded_open(arena, argv[2], &recorded);
  if (status.code == STATUS_ok)
    status = writes ? write_checkpoint(arena, &recorded, argv[3], prefix)
                    : compare(arena, &recorded, argv[3], prefix);
  if (status.code != STATUS_ok) printf("reference: %s\n", status.message);
  memory_destroy(memory);
  return status.code == STATUS_ok ? 0 : 1;
}
