/*
 * reference.c -- the helper of reference.sh: makes a checkpoint of recorded
 * parameters, and compares the gradients in a written one with the records.
 *
 *     reference write MODEL.safetensors FOLDER
 *     reference compare MODEL.safetensors FOLDER/step-00000001
 *
 * The model trains with sgd and momentum, so that after the first step the
 * moment is the gradient.  The L2 error of each tensor may be 1e-5, or twice
 * what PyTorch's own f32 gradient is off where that is more.
 */
#include "tests/e2e/checkpoints.h"
#include "tests/unit/reference_files.h"

static void exhausted(void *user) {
  (void)user;
  exit(3);
}

static Status write_checkpoint(Arena *arena, const Recorded *recorded,
                               const char *folder) {
  Given *given = ARENA_ARRAY(arena, Given, recorded->header.n_tensors);
  int n = 0;
  for (int i = 0; i < recorded->header.n_tensors; i++) {
    const StoredTensor *from = &recorded->header.tensors[i];
    if (strncmp(from->name, "param/", 6) != 0) continue;
    Given *to = &given[n++];
    *to = (Given){.path = from->name + strlen("param/"),
                  .rank = from->rank,
                  .values = recorded_values(arena, recorded, from)};
    for (int d = 0; d < from->rank; d++) to->size[d] = from->size[d];
  }
  return given_write(arena, folder, given, n);
}

static Status compare(Arena *arena, const Recorded *recorded,
                      const char *folder) {
  Checkpoint checkpoint;
  TRY(checkpoint_open(arena, folder, &checkpoint));
  double worst = 0;
  int n_compared = 0, n_wrong = 0;
  for (int i = 0; i < recorded->header.n_tensors; i++) {
    const StoredTensor *wanted = &recorded->header.tensors[i];
    if (strncmp(wanted->name, "grad/", 5) != 0) continue;
    const char *path = wanted->name + strlen("grad/");
    const StoredTensor *error = recorded_find(recorded, "f32_error/", path);
    int64_t n = recorded_elements(wanted);
    double *got;
    TRY(stored_read(arena, &checkpoint, arena_printf(arena, "sgd.m/%s", path),
                    n, &got));
    double off =
        relative_error(got, recorded_values(arena, recorded, wanted), n);
    double limit = fmax(1e-5, 2 * recorded_values(arena, recorded, error)[0]);
    bool is_right = off <= limit;
    if (!is_right) printf("%s: off by %.3g, allowed %.3g\n", path, off, limit);
    n_wrong += !is_right;
    worst = fmax(worst, off);
    n_compared++;
  }
  checkpoint_close(&checkpoint);
  printf("%d gradients, worst relative L2 error %.3g\n", n_compared, worst);
  if (n_wrong || !n_compared)
    return status_make(STATUS_invalid, "%d gradients are wrong", n_wrong);
  return STATUS_OK;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  Memory *memory = memory_create(exhausted, NULL);
  Arena *arena = arena_create(memory);
  Recorded recorded;
  Status status = recorded_open(arena, argv[2], &recorded);
  if (status.code == STATUS_ok)
    status = !strcmp(argv[1], "write")
                 ? write_checkpoint(arena, &recorded, argv[3])
                 : compare(arena, &recorded, argv[3]);
  if (status.code != STATUS_ok) printf("reference: %s\n", status.message);
  memory_destroy(memory);
  return status.code == STATUS_ok ? 0 : 1;
}
