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
#include "tests/unit/reference_files.h"

#include <unistd.h>

static void exhausted(void *user) {
  (void)user;
  exit(3);
}

/* ---- writing ---- */

/* A device whose arena is the host's memory. */
static Status read_memory(Device *device, int64_t offset, void *to,
                          int64_t bytes) {
  memcpy(to, (const char *)device->state + offset, (size_t)bytes);
  return STATUS_OK;
}

static void add_parameter(Arena *arena, const Recorded *recorded,
                          const StoredTensor *from, DnnTensor *out, float *to) {
  int64_t n = recorded_elements(from);
  const double *values = recorded_values(arena, recorded, from);
  *out = (DnnTensor){.path = from->name + strlen("param/"),
                     .role = DNN_PARAM,
                     .dtype = DNN_f32,
                     .rank = from->rank};
  for (int d = 0; d < from->rank; d++) {
    out->size[d] = from->size[d];
    out->split[d].pieces = 1;
  }
  out->bytes = n * (int64_t)sizeof(float);
  for (int64_t k = 0; k < n; k++) to[k] = (float)values[k];
}

static Status write_checkpoint(Arena *arena, const Recorded *recorded,
                               const char *folder) {
  int n = recorded->header.n_tensors;
  DnnTensor *tensors = ARENA_ARRAY(arena, DnnTensor, n);
  DnnProgram program = {.abi = DNN_ABI, .model = "reference", .world = 1};
  program.tensors = tensors;
  int64_t bytes = 0;
  for (int i = 0; i < n; i++)
    bytes += recorded_elements(&recorded->header.tensors[i]) * 4;
  Device device = {.name = "memory",
                   .read = read_memory,
                   .state = arena_alloc(arena, (size_t)bytes)};
  int64_t at = 0;
  for (int i = 0; i < n; i++) {
    const StoredTensor *from = &recorded->header.tensors[i];
    if (strncmp(from->name, "param/", 6) != 0) continue;
    DnnTensor *tensor = &tensors[program.n_tensors++];
    add_parameter(arena, recorded, from, tensor,
                  (float *)((char *)device.state + at));
    tensor->offset = at;
    at += tensor->bytes;
  }
  program.persistent_bytes = program.arena_bytes = at;
  Saver *saver;
  TRY(saver_open(arena, &program, folder, &saver));
  Status status = saver_save(saver, &device, 0, 1);
  saver_close(saver);
  return status;
}

/* ---- comparing ---- */

static Status read_stored(Arena *arena, const Checkpoint *checkpoint,
                          const char *name, int64_t n, double *out) {
  for (int f = 0; f < checkpoint->n_files; f++) {
    const StoredFile *file = &checkpoint->files[f];
    for (int i = 0; i < file->header.n_tensors; i++) {
      const StoredTensor *tensor = &file->header.tensors[i];
      if (strcmp(tensor->name, name) != 0) continue;
      if (recorded_elements(tensor) != n || tensor->dtype != DNN_f32)
        return status_make(STATUS_invalid, "'%s' has another type", name);
      float *values = ARENA_ARRAY(arena, float, n);
      ssize_t size = (ssize_t)(n * (int64_t)sizeof *values);
      if (pread(file->fd, values, (size_t)size,
                file->data_begin + tensor->begin) != size)
        return status_make(STATUS_io, "cannot read '%s'", name);
      for (int64_t k = 0; k < n; k++) out[k] = values[k];
      return STATUS_OK;
    }
  }
  return status_make(STATUS_invalid, "'%s' has no '%s'", checkpoint->path,
                     name);
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
    double *got = ARENA_ARRAY(arena, double, n);
    TRY(read_stored(arena, &checkpoint, arena_printf(arena, "sgd.m/%s", path),
                    n, got));
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
