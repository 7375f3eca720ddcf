/*
 * torch_names.c -- helps maps.sh and predict_reference.sh: it makes checkpoints
 * under the names of torchvision and Hugging Face, and inputs, with values from
 * a formula, and compares the predictions.
 *
 *     torch_names write TABLE OUT.safetensors [SHRINK]
 *     torch_names list FILE.safetensors            name, dtype and sizes
 *     torch_names same A.safetensors B.safetensors [SUFFIX]
 *     torch_names images OUT.idx N C Y X
 *     torch_names tokens OUT.bin N BELOW
 *     torch_names close GOT.npy WANTED.npy LIMIT
 *
 * A line of a table is "F32 NAME SIZE ...".  Element i of a tensor is shift +
 * scale u(i), rounded to f32, with u on [-1, 1) from the name and i as in
 * tests/reference/recorder.py; scale and shift follow from the name and the
 * sizes (tests/reference/torch_names.py has the same rules).  SHRINK divides
 * sizes that are multiples of 8 and at least 16.
 *
 * `same`: every tensor of A that does not end in SUFFIX is in B with the same
 * bytes, and B has no other.  `close`: ||got - wanted|| of every record is at
 * most LIMIT ||wanted||.
 */
#include "tests/e2e/checkpoints.h"
#include "tests/unit/reference_files.h"

#include <fcntl.h>

static void exhausted(void *user) {
  (void)user;
  exit(3);
}

static void stop_if(bool is_wrong, const char *what, const char *name) {
  if (!is_wrong) return;
  fprintf(stderr, "torch_names: %s: %s\n", name, what);
  exit(1);
}

/* ---- the formula ---- */

static bool ends_in(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n >= m && strcmp(name + n - m, end) == 0;
}

static double unit(uint64_t key, int64_t i) {
  return ((double)(recorded_bits(key, i) >> 40) - 8388608.0) / 8388608.0;
}

typedef struct Formula {
  double shift, scale;
} Formula;

static Formula formula_of(const StoredTensor *tensor) {
  double fan = 1;
  for (int d = 1; d < tensor->rank; d++) fan *= (double)tensor->size[d];
  if (ends_in(tensor->name, "running_var")) return (Formula){1, 0.5};
  if (ends_in(tensor->name, "running_mean")) return (Formula){0, 0.25};
  if (tensor->rank == 3) return (Formula){0, 0.5}; /* tokens and positions */
  if (tensor->rank > 1) return (Formula){0, sqrt(3 / fan)};
  bool is_gain =
      ends_in(tensor->name, "weight") || ends_in(tensor->name, "gamma");
  return is_gain ? (Formula){1, 0.25} : (Formula){0, 0.125};
}

static Status read_formula(void *user, int index, int64_t at, void *to,
                           int64_t n) {
  const StoredTensor *tensor = &((const StoredTensor *)user)[index];
  uint64_t key = recorded_key(tensor->name);
  memset(to, 0, (size_t)n);
  if (tensor->dtype != DNN_f32) return STATUS_OK;
  Formula formula = formula_of(tensor);
  for (int64_t i = 0; i < n / 4; i++)
    ((float *)to)[i] =
        (float)(formula.shift + formula.scale * unit(key, at / 4 + i));
  return STATUS_OK;
}

/* ---- tables ---- */

static int64_t shrunk(int64_t size, int64_t by) {
  return by > 1 && size >= 16 && size % 8 == 0 ? size / by : size;
}

static StoredTensor *read_table(Arena *arena, const char *path, int64_t by,
                                int *out_n) {
  const char *text;
  size_t bytes;
  Status status = file_read(arena, path, 1 << 24, &text, &bytes);
  stop_if(status.code != STATUS_ok, status.message, path);
  StoredTensor *tensors = ARENA_ARRAY(arena, StoredTensor, bytes / 8 + 1);
  int n = 0;
  for (const char *line = text; *line; line += *line == '\n') {
    size_t length = strcspn(line, "\n"), word = strcspn(line + 4, " \n");
    StoredTensor *tensor = &tensors[n++];
    tensor->dtype = strncmp(line, "F32 ", 4) == 0 ? DNN_f32 : DNN_i64;
    tensor->name = arena_printf(arena, "%.*s", (int)word, line + 4);
    const char *at = line + 4 + word;
    while (at < line + length && tensor->rank < SAFETENSORS_MAX_RANK) {
      char *end;
      tensor->size[tensor->rank++] = shrunk(strtoll(at, &end, 10), by);
      stop_if(end == at, "a line that is no tensor", path);
      at = end;
    }
    line += length;
  }
  *out_n = n;
  return tensors;
}

static void write_table(Arena *arena, const char *table, const char *out,
                        int64_t by) {
  static const StoredText metadata[] = {{"format", "pt"}};
  int n;
  StoredTensor *tensors = read_table(arena, table, by, &n);
  stop_if(n == 0, "an empty table", table);
  TensorFiles *files = tensor_files_create(arena, tensors, n, INT64_MAX, true);
  char folder[] = "torch-names-XXXXXX";
  stop_if(!mkdtemp(folder), "cannot make a folder", folder);
  int fd = open(folder, O_RDONLY | O_DIRECTORY);
  Status status =
      tensor_files_write(files, fd, metadata, 1, NULL, read_formula, tensors);
  stop_if(status.code != STATUS_ok, status.message, out);
  stop_if(renameat(fd, "model.safetensors", AT_FDCWD, out) != 0,
          "cannot rename", out);
  close(fd);
  rmdir(folder);
}

/* ---- what is in a file ---- */

static void list(Arena *arena, const char *path) {
  Recorded recorded;
  Status status = recorded_open(arena, path, &recorded);
  stop_if(status.code != STATUS_ok, status.message, path);
  for (int i = 0; i < recorded.header.n_tensors; i++) {
    const StoredTensor *tensor = &recorded.header.tensors[i];
    printf("%s %s[", tensor->name, dtype_label(tensor->dtype));
    for (int d = 0; d < tensor->rank; d++)
      printf("%s%lld", d ? ", " : "", (long long)tensor->size[d]);
    printf("]\n");
  }
}

static bool is_same(const Recorded *a, const StoredTensor *x, const Recorded *b,
                    const StoredTensor *y) {
  int64_t n = x->end - x->begin;
  bool same = x->dtype == y->dtype && x->rank == y->rank &&
              n == y->end - y->begin &&
              memcmp(a->data + x->begin, b->data + y->begin, (size_t)n) == 0;
  for (int d = 0; same && d < x->rank; d++) same = x->size[d] == y->size[d];
  return same;
}

static void same(Arena *arena, const char *path_a, const char *path_b,
                 const char *suffix) {
  Recorded a, b;
  Status status = recorded_open(arena, path_a, &a);
  stop_if(status.code != STATUS_ok, status.message, path_a);
  status = recorded_open(arena, path_b, &b);
  stop_if(status.code != STATUS_ok, status.message, path_b);
  int n = 0;
  for (int i = 0; i < a.header.n_tensors; i++) {
    const StoredTensor *x = &a.header.tensors[i];
    if (suffix && ends_in(x->name, suffix)) continue;
    const StoredTensor *y = recorded_find(&b, "", x->name);
    stop_if(!y, "it is not in the second file", x->name);
    stop_if(!is_same(&a, x, &b, y), "the two are not the same", x->name);
    n++;
  }
  stop_if(n != b.header.n_tensors, "it has more tensors", path_b);
  stop_if(n == 0, "nothing was compared", path_a);
  printf("%d tensors\n", n);
}

/* ---- inputs ---- */

static void put_big_endian(FILE *file, uint32_t word) {
  for (int i = 3; i >= 0; i--) putc((int)(word >> 8 * i & 255), file);
}

/* f32 on [-1, 1) as an IDX file. */
static void write_images(const char *path, char *const *sizes) {
  FILE *file = fopen(path, "wb");
  stop_if(!file, "cannot write", path);
  int64_t n = 1;
  uint64_t key = recorded_key("images");
  put_big_endian(file, 0x0D04);
  for (int d = 0; d < 4; d++) {
    n *= strtoll(sizes[d], NULL, 10);
    put_big_endian(file, (uint32_t)strtoul(sizes[d], NULL, 10));
  }
  for (int64_t i = 0; i < n; i++) {
    float value = (float)unit(key, i);
    uint32_t word;
    memcpy(&word, &value, 4);
    put_big_endian(file, word);
  }
  stop_if(fclose(file) != 0, "cannot write", path);
}

static void write_tokens(const char *path, int64_t n, uint64_t below) {
  FILE *file = fopen(path, "wb");
  stop_if(!file, "cannot write", path);
  int32_t header[256] = {20240520, 1, (int32_t)n};
  uint64_t key = recorded_key("tokens");
  fwrite(header, sizeof header, 1, file);
  for (int64_t i = 0; i < n; i++) {
    uint16_t token = (uint16_t)((recorded_bits(key, i) >> 40) % below);
    fwrite(&token, sizeof token, 1, file);
  }
  stop_if(fclose(file) != 0, "cannot write", path);
}

/* ---- results ---- */

/* Numbers of a .npy file in C order, f32 or f64; *out_rows of the first dim. */
static double *read_npy(Arena *arena, const char *path, int64_t *out_n,
                        int64_t *out_rows) {
  const char *bytes;
  size_t n;
  Status status = file_read(arena, path, 1 << 28, &bytes, &n);
  stop_if(status.code != STATUS_ok, status.message, path);
  stop_if(n < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0, "no .npy file", path);
  size_t header = 10 + (uint8_t)bytes[8] + 256u * (uint8_t)bytes[9];
  stop_if(header > n, "no .npy file", path);
  char *text = arena_printf(arena, "%.*s", (int)(header - 10), bytes + 10);
  bool is_f32 = strstr(text, "'<f4'") != NULL;
  const char *shape = strstr(text, "'shape': (");
  stop_if(!shape || strstr(text, "True") || (!is_f32 && !strstr(text, "'<f8'")),
          "not f32 or f64 in C order", path);
  *out_rows = strtoll(shape + strlen("'shape': ("), NULL, 10);
  *out_n = (int64_t)(n - header) / (is_f32 ? 4 : 8);
  double *values = ARENA_ARRAY(arena, double, *out_n);
  for (int64_t i = 0; i < *out_n; i++) {
    float narrow;
    if (is_f32) {
      memcpy(&narrow, bytes + header + 4 * i, 4);
      values[i] = (double)narrow;
    } else {
      memcpy(&values[i], bytes + header + 8 * i, 8);
    }
  }
  return values;
}

static void close_enough(Arena *arena, const char *path, const char *reference,
                         double limit) {
  int64_t n, rows, n_wanted, rows_wanted;
  const double *got = read_npy(arena, path, &n, &rows);
  const double *wanted = read_npy(arena, reference, &n_wanted, &rows_wanted);
  double worst = 0;
  stop_if(n != n_wanted || rows != rows_wanted || rows < 1,
          "it has another number of values", path);
  for (int64_t r = 0; r < rows; r++) {
    double error =
        relative_error(got + r * (n / rows), wanted + r * (n / rows), n / rows);
    if (!(error <= worst)) worst = error; /* also NaN */
  }
  printf("%lld records, off by %.2g\n", (long long)rows, worst);
  stop_if(!(worst <= limit), "it is off by more than allowed", path);
}

int main(int argc, char **argv) {
  Arena *arena = arena_create(memory_create(exhausted, NULL));
  const char *command = argc > 1 ? argv[1] : "";
  if (strcmp(command, "write") == 0 && argc >= 4)
    write_table(arena, argv[2], argv[3],
                argc > 4 ? strtoll(argv[4], NULL, 10) : 1);
  else if (strcmp(command, "list") == 0 && argc == 3)
    list(arena, argv[2]);
  else if (strcmp(command, "same") == 0 && argc >= 4)
    same(arena, argv[2], argv[3], argc > 4 ? argv[4] : NULL);
  else if (strcmp(command, "images") == 0 && argc == 7)
    write_images(argv[2], argv + 3);
  else if (strcmp(command, "tokens") == 0 && argc == 5)
    write_tokens(argv[2], strtoll(argv[3], NULL, 10),
                 strtoull(argv[4], NULL, 10));
  else if (strcmp(command, "close") == 0 && argc == 5)
    close_enough(arena, argv[2], argv[3], strtod(argv[4], NULL));
  else
    stop_if(true, "see the head of torch_names.c", "usage");
  return 0;
}
