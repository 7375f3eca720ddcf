// links: convert frontend passes runtime ir support
/*
 * convert.c -- tests mapping files: their text, their mistakes (golden messages
 * in tests/golden/maps), and tensors moved by them in both directions; at last
 * GPT-2 and LLaMA with the names and layouts of Hugging Face, whose logits
 * another implementation recorded (tests/reference/gpt2_hf.py, llama_hf.py).
 *
 * With DNNC_BLESS=1 in the environment the golden files are written instead.
 */
#include "frontend/frontend.h"
#include "tests/unit/reference_files.h"
#include "tests/unit/values.h"
#include "convert/convert.h"

#include <fcntl.h>
#include <glob.h>
#include <unistd.h>

TestSuite(map, .fini = modules_destroy);
TestSuite(convert, .fini = modules_destroy);

/* ---- text ---- */

static const Source *source_of(Module *module, const char *path,
                               const char *text) {
  Source source = {path, text, strlen(text)};
  return arena_copy(module->arena, &source, sizeof source);
}

static const char *read_text(Module *module, const char *path) {
  const char *text;
  size_t n;
  Status status = file_read(module->arena, path, 1 << 20, &text, &n);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  return text;
}

/* The map as text, or its messages. */
static const char *understood(Module *module, const char *path,
                              const char *text) {
  Text out = text_create(module->arena);
  TensorMap *map = tensormap_parse(module, source_of(module, path, text));
  if (map)
    tensormap_print(&out, map);
  else
    diags_print(module->diags, &out);
  return text_string(&out);
}

static void each_file(const char *pattern,
                      void (*check)(const char *path, const char *text)) {
  glob_t found;
  char all[400];
  snprintf(all, sizeof all, "%s/%s", TEST_ROOT, pattern);
  cr_assert(glob(all, 0, NULL, &found) == 0, "%s", all);
  for (size_t i = 0; i < found.gl_pathc; i++)
    check(found.gl_pathv[i], read_text(module_create(), found.gl_pathv[i]));
  globfree(&found);
}

static void check_golden(const char *path, const char *text) {
  char golden[400];
  const char *name = strrchr(path, '/') + 1;
  const char *got = understood(module_create(), name, text);
  snprintf(golden, sizeof golden, "%.*s.txt", (int)strlen(path) - 4, path);
  if (getenv("DNNC_BLESS")) {
    file_replace(golden, got, strlen(got));
    return;
  }
  cr_expect_str_eq(got, read_text(module_create(), golden), "%s", name);
}

static void check_printing(const char *path, const char *text) {
  Module *module = module_create();
  const char *once = understood(module, path, text);
  if (diags_errors(module->diags) > 0) return;
  cr_expect_str_eq(once, understood(module, path, once), "%s", path);
}

Test(map, golden) {
  each_file("tests/golden/maps/*.map", check_golden);
}

Test(map, prints_to_what_it_is) {
  each_file("tests/golden/maps/*.map", check_printing);
  each_file("models/*.map", check_printing);
}

/* A name ends at a NUL byte everywhere else. */
Test(map, names_hold_no_nul) {
  Module *module = module_create();
  static const char text[] = "\"a\0b\" = c\n";
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"nul.map", text, sizeof text - 1};
  cr_assert_null(tensormap_parse(module, source));
  Text out = text_create(module->arena);
  diags_print(module->diags, &out);
  cr_assert(strstr(text_string(&out),
                   "nul.map:1:2: error: expecting a name without NUL bytes"),
            "%s", text_string(&out));
}

/* Every beginning of a map is read without harm. */
Test(map, any_beginning_ends) {
  Module *module = module_create();
  char path[400];
  snprintf(path, sizeof path, "%s/tests/golden/maps/right.map", TEST_ROOT);
  const char *text = read_text(module, path);
  for (size_t n = 0; n < strlen(text); n++)
    understood(module_create(), "beginning",
               arena_printf(module->arena, "%.*s", (int)n, text));
}

Test(map, patterns) {
  int64_t values[4];
  cr_assert(pattern_match("h.{i}.w", "h.12.w", values) && values[0] == 12);
  cr_assert(pattern_match("{i}.{j}", "0.7", values) && values[1] == 7);
  cr_assert_not(pattern_match("h.{i}.w", "h.012.w", values));
  cr_assert_not(pattern_match("h.{i}.w", "h..w", values));
  cr_assert_not(pattern_match("h.{i}", "h.1.w", values));
  cr_assert_not(pattern_match("h.{i}.w", "h.1", values));
  cr_assert(pattern_match("layer{s+1}.{i}", "layer1.0", values) &&
            values[0] == 0);
  cr_assert_not(pattern_match("layer{s+1}.{i}", "layer0.0", values));
  Module *module = module_create();
  Name i = name_intern(module->names, "i"), m = name_intern(module->names, "m");
  const MapBinding bindings[] = {{i, 3, NULL}, {m, 2, "5b"}};
  cr_assert_str_eq(
      pattern_fill(module->arena, "a[{i}].{i+11}{m}[{m+0}]{j}", bindings, 2),
      "a[3].145b[2]{j}");
}

Test(map, groups) {
  Module *module = module_create();
  int sizes[4], members[] = {1, 2};
  const char *pattern = "bn{1, 2}.{i}.x{4..7}";
  cr_assert_null(pattern_check(pattern));
  cr_assert_eq(pattern_groups(pattern, sizes, 4), 2);
  cr_assert(sizes[0] == 2 && sizes[1] == 4);
  cr_assert_str_eq(pattern_expand(module->arena, pattern, members),
                   "bn2.{i}.x6");
  static const char *const wrong[] = {
      "{a,}", "{,}",    "{a b,c}",        "{1}", "{a", "a}", "{}", "{{a}}",
      "{a+}", "{3..1}", "{a}{b}{c}{d}{e}"};
  for (size_t k = 0; k < ARRAY_LENGTH(wrong); k++)
    cr_expect(pattern_check(wrong[k]), "%s", wrong[k]);
}

Test(map, wildcards) {
  cr_assert(pattern_drops("*.num_batches_tracked", "a.b.num_batches_tracked"));
  cr_assert_not(pattern_drops("*.num_batches_tracked", "num_batches_tracked"));
  cr_assert(pattern_drops("a*b*c", "abxbc"));
  cr_assert_not(pattern_drops("a*b*c", "abx"));
  cr_assert(pattern_drops("aux{i+1}.*", "aux2."));
  cr_assert_not(pattern_drops("aux{i+1}.*", "aux0.x"));
  cr_assert(pattern_drops("*", ""));
}

/* ---- checkpoints ---- */

static Checkpoint open_checkpoint(Module *module, const char *path) {
  Checkpoint checkpoint;
  Status status = checkpoint_open(module->arena, path, &checkpoint);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  return checkpoint;
}

/* Written, opened and removed: the open file stays readable. */
static Checkpoint write_and_open(Module *module, const StoredTensor *tensors,
                                 int n, TensorReader *read, void *user) {
  char folder[] = "/tmp/dnn-convert-XXXXXX";
  TensorFiles *files =
      tensor_files_create(module->arena, tensors, n, INT64_MAX, true);
  cr_assert(mkdtemp(folder));
  int fd = open(folder, O_RDONLY | O_DIRECTORY);
  Status status = tensor_files_write(files, fd, NULL, 0, NULL, read, user);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  Checkpoint checkpoint = open_checkpoint(module, folder);
  unlinkat(fd, "model.safetensors", 0);
  close(fd);
  rmdir(folder);
  return checkpoint;
}

static Conversion plan(Module *module, const char *map, const Checkpoint *from,
                       int side) {
  Conversion conversion = {
      .module = module,
      .map = tensormap_parse(module, source_of(module, "test.map", map)),
      .from = from,
      .side = side};
  Text messages = text_create(module->arena);
  diags_print(module->diags, &messages);
  cr_assert(conversion.map, "%s", text_string(&messages));
  conversion_make(&conversion);
  return conversion;
}

static Checkpoint convert(Module *module, const char *map,
                          const Checkpoint *from, int side) {
  Conversion conversion = plan(module, map, from, side);
  cr_assert_str_eq(text_string(&conversion.misfits), "");
  Text messages = text_create(module->arena);
  diags_print(module->diags, &messages);
  cr_assert_str_eq(text_string(&messages), "");
  Mover mover = {.conversion = &conversion,
                 .current = -1,
                 .values = value_report_create(module->arena)};
  Checkpoint made = write_and_open(module, conversion.tensors.data,
                                   conversion.tensors.n, mover_read, &mover);
  mover_close(&mover);
  return made;
}

static const void *bytes_of(Module *module, const Checkpoint *checkpoint,
                            const char *name, const StoredTensor **out) {
  const StoredFile *file;
  *out = checkpoint_tensor(checkpoint, name, &file);
  cr_assert(*out, "no %s", name);
  int64_t n = (*out)->end - (*out)->begin;
  void *bytes = arena_alloc(module->arena, (size_t)n);
  cr_assert_eq(checkpoint_read(file, *out, 0, bytes, n).code, STATUS_ok);
  return bytes;
}

static void expect_same(Module *module, const Checkpoint *a,
                        const Checkpoint *b) {
  cr_assert_eq(a->n_places, b->n_places);
  for (int i = 0; i < a->n_places; i++) {
    const StoredTensor *x, *y;
    const char *name = a->places[i].tensor->name;
    const void *p = bytes_of(module, a, name, &x);
    const void *q = bytes_of(module, b, name, &y);
    cr_assert(x->dtype == y->dtype && x->rank == y->rank, "%s", name);
    cr_assert_arr_eq(x->size, y->size, x->rank * sizeof *x->size);
    cr_assert_eq(memcmp(p, q, (size_t)(x->end - x->begin)), 0, "%s", name);
  }
}

/* ---- small tensors, looked at element by element ---- */

static Status count_up(void *user, int index, int64_t at, void *to, int64_t n) {
  (void)user;
  float *values = to;
  for (int64_t i = 0; i < n / 4; i++)
    values[i] = (float)(1000 * index + at / 4 + i);
  return STATUS_OK;
}

/* Tensors a, b, ... of these shapes, in f32: element i of tensor k is
 * 1000 k + i. */
static Checkpoint counting(Module *module, const StoredTensor *tensors, int n) {
  return write_and_open(module, tensors, n, count_up, NULL);
}

static void expect_values(Module *module, const Checkpoint *checkpoint,
                          const char *name, int n, const float *wanted) {
  const StoredTensor *tensor;
  const float *values = bytes_of(module, checkpoint, name, &tensor);
  cr_assert_eq(stored_elements(tensor), n, "%s", name);
  for (int i = 0; i < n; i++)
    cr_assert_eq(values[i], wanted[i], "%s[%d] is %g, not %g", name, i,
                 (double)values[i], (double)wanted[i]);
}

#define F(...)                                                                 \
  (const float[]) {                                                            \
    __VA_ARGS__                                                                \
  }

/* Transposing, splitting and merging dims, and joining along each of them. */
Test(convert, elements_find_their_places) {
  Module *module = module_create();
  const StoredTensor tensors[] = {
      {.name = "a", .dtype = DNN_f32, .rank = 2, .size = {2, 3}},
      {.name = "b", .dtype = DNN_f32, .rank = 3, .size = {2, 1, 2}},
      {.name = "c", .dtype = DNN_f32, .rank = 1, .size = {6}},
      {.name = "d.0", .dtype = DNN_f32, .rank = 0},
      {.name = "d.1", .dtype = DNN_f32, .rank = 0},
      {.name = "e", .dtype = DNN_f32, .rank = 2, .size = {3, 3}}};
  static const char map[] = "dim B = 3\n"
                            "a: [X, Y], b: [X, 1, Z] = joined: [Y + Z, X]\n"
                            "c: [(A, B)] = turned: [B, A]\n"
                            "d.{i} = d[{i}]\n"
                            "e: [P + (Q, Q2), R] = e0: [R, P], e1: [Q2, R, Q]\n"
                            "dim P = 1, Q = 2, Y = 3\n";
  Checkpoint from = counting(module, tensors, ARRAY_LENGTH(tensors));
  Checkpoint to = convert(module, map, &from, 0);
  expect_values(module, &to, "joined", 10,
                F(0, 3, 1, 4, 2, 5, 1000, 1002, 1001, 1003));
  expect_values(module, &to, "turned", 6,
                F(2000, 2003, 2001, 2004, 2002, 2005));
  expect_values(module, &to, "d[1]", 1, F(4000));
  expect_values(module, &to, "e0", 3, F(5000, 5001, 5002));
  expect_values(module, &to, "e1", 6, F(5003, 5006, 5004, 5007, 5005, 5008));
  Checkpoint back = convert(module, map, &to, 1);
  expect_same(module, &from, &back);
  checkpoint_close(&from);
  checkpoint_close(&to);
  checkpoint_close(&back);
}

Test(convert, casts_when_it_writes) {
  Module *module = module_create();
  const StoredTensor tensors[] = {
      {.name = "a", .dtype = DNN_f32, .rank = 1, .size = {300}}};
  Checkpoint from = counting(module, tensors, 1);
  Checkpoint to = convert(module, "a: f32[N] = b: bf16[N]\n", &from, 0);
  const StoredTensor *tensor;
  const uint16_t *bits = bytes_of(module, &to, "b", &tensor);
  cr_assert_eq(tensor->dtype, DNN_bf16);
  cr_assert_eq(bits[1], 0x3f80);
  cr_assert_eq(bits[257], 0x4380); /* 257 lies between 256 and 258: to even */
  Checkpoint back = convert(module, "a: f32[N] = b: bf16[N]\n", &to, 1);
  const float *values = bytes_of(module, &back, "a", &tensor);
  cr_assert_eq(tensor->dtype, DNN_f32);
  cr_assert(values[255] == 255 && values[257] == 256);
  checkpoint_close(&from);
  checkpoint_close(&to);
  checkpoint_close(&back);
}

Test(convert, all_misfits_are_listed) {
  Module *module = module_create();
  const StoredTensor tensors[] = {
      {.name = "w.0", .dtype = DNN_f32, .rank = 2, .size = {4, 3}},
      {.name = "w.2", .dtype = DNN_f32, .rank = 2, .size = {5, 3}},
      {.name = "x", .dtype = DNN_i32, .rank = 1, .size = {2}},
      {.name = "y", .dtype = DNN_f32, .rank = 1, .size = {2}},
      {.name = "z", .dtype = DNN_f32, .rank = 1, .size = {2}}};
  Checkpoint from = counting(module, tensors, ARRAY_LENGTH(tensors));
  Conversion conversion = plan(module,
                               "dim D = 2\n"
                               "range i = 0..2\n"
                               "drop z\n"
                               "w.{i}: [(H, D), C] = v.{i}: [H, D, C]\n"
                               "x: [A] = x: f32[A]\n"
                               "u.{j} = n.{j}\n",
                               &from, 0);
  cr_assert_eq(conversion.n_misfits, 5);
  cr_assert_str_eq(
      text_string(&conversion.misfits),
      "missing:  w.1\n"
      "differs:  w.2 is f32[5, 3], the map has [(H, D), C] with D = 2\n"
      "differs:  x is i32[2] and cannot become f32\n"
      "missing:  u.{j} (no name fits)\n"
      "extra:    y f32[2]\n");
  checkpoint_close(&from);
}

static const char *misfits_of(const char *const *names, int n, const char *map,
                              int side) {
  Module *module = module_create();
  StoredTensor *tensors = ARENA_ARRAY(module->arena, StoredTensor, n);
  for (int i = 0; i < n; i++)
    tensors[i] = (StoredTensor){
        .name = names[i], .dtype = DNN_f32, .rank = 1, .size = {2}};
  Checkpoint from = counting(module, tensors, n);
  Conversion conversion = plan(module, map, &from, side);
  checkpoint_close(&from);
  return text_string(&conversion.misfits);
}

/* Lines with the same letters share values, layer by layer. */
Test(convert, letters_take_values_together) {
  static const char *const names[] = {"l1.0.w", "l1.1.w", "l2.0.w",
                                      "l1.0.b", "l2.0.b", "l2.down"};
  static const char map[] = "l{s+1}.{i}.{w,b} = m[{s}][{i}].{w,b}\n"
                            "l{s+1}.down = m[{s}].down\n";
  cr_expect_str_eq(misfits_of(names, 6, map, 0), "missing:  l1.1.b\n");
  static const char *const ours[] = {"m[0][0].w", "m[0][0].b", "m[1][0].w",
                                     "m[1][0].b", "m[1].down"};
  cr_expect_str_eq(misfits_of(ours, 5, map, 1), "");
  static const char listed[] = "x{m}.{i} = y[{m+0}].{i} for m in b c 7\n";
  static const char *const some[] = {"xb.0", "xc.0", "xc.3", "x7.0", "xd.0"};
  cr_expect_str_eq(misfits_of(some, 5, listed, 0),
                   "missing:  xb.3\nmissing:  x7.3\nextra:    xd.0 f32[2]\n");
}

Test(convert, the_alternative_that_fits_best) {
  static const char map[] = "a = a\n"
                            "either\n  b = x.b\n  c = x.c\n"
                            "or\n  b = y.b\n  d.{i} = y.d[{i}]\n"
                            "or\nend\n";
  static const char *const first[] = {"a", "b", "c"};
  static const char *const second[] = {"a", "b", "d.0", "d.1"};
  static const char *const part[] = {"a", "c"}, *const none[] = {"a"};
  static const char *const back[] = {"a", "x.b", "x.c", "y.b"};
  cr_expect_str_eq(misfits_of(first, 3, map, 0), "");
  cr_expect_str_eq(misfits_of(second, 4, map, 0), "");
  cr_expect_str_eq(misfits_of(none, 1, map, 0), "");
  cr_expect_str_eq(misfits_of(part, 2, map, 0), "extra:    c f32[2]\n");
  cr_expect_str_eq(misfits_of(back, 4, map, 1), "extra:    y.b f32[2]\n");
  /* Without an empty one the nearest says what is missing. */
  static const char strict[] = "a = a\n"
                               "either\n  b = x.b\n"
                               "or\n  c = y.c\n  e = y.e\nend\n";
  cr_expect_str_eq(misfits_of(part, 2, strict, 0), "missing:  e\n");
}

Test(convert, unknown_sizes_are_mistakes_of_the_map) {
  Module *module = module_create();
  const StoredTensor tensors[] = {
      {.name = "w", .dtype = DNN_f32, .rank = 1, .size = {6}}};
  Checkpoint from = counting(module, tensors, 1);
  plan(module, "w: [(H, D)] = v: [D, H]\n", &from, 0);
  Text out = text_create(module->arena);
  diags_print(module->diags, &out);
  cr_assert(strstr(text_string(&out), "test.map:1:1: error: the size of dim "
                                      "'H' of 'w' cannot be computed"),
            "%s", text_string(&out));
  checkpoint_close(&from);
}

/* ---- GPT-2 ---- */

static const char *in_root(Module *module, const char *path) {
  return arena_printf(module->arena, "%s/%s", TEST_ROOT, path);
}

/* The model of models/ with a sample block, whatever blocks it has itself. */
typedef struct Net {
  Module *module;
  const char *text;
} Net;

static const Source *load_source(void *user, const char *path) {
  const Net *net = user;
  return source_of(net->module, path,
                   strstr(path, "net.dnn") ? net->text
                                           : read_text(net->module, path));
}

static const Graph *net_graph(Module *module, const char *name,
                              const Override *sizes, int n) {
  Net net = {module, arena_printf(module->arena,
                                  "import \"%s.dnn\"\nsample { model = %s }\n",
                                  name, name)};
  FrontendOptions options = {.load = load_source,
                             .user = &net,
                             .path = in_root(module, "models/net.dnn"),
                             .net = name,
                             .overrides = sizes,
                             .n_overrides = n};
  Model *model = frontend_load(module, &options).model;
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  cr_assert(model && model->prefill, "%s", text_string(&text));
  return model->prefill;
}

static Tensor parameter(Module *module, const Checkpoint *checkpoint,
                        const Graph *graph, const GraphInput *input) {
  Tensor tensor = tensor_create(module->arena, graph_type(graph, input->value));
  const StoredTensor *stored;
  const float *values = bytes_of(module, checkpoint, input->path, &stored);
  cr_assert_eq(stored->rank, tensor.type->rank, "%s", input->path);
  for (int d = 0; d < stored->rank; d++)
    cr_assert_eq(stored->size[d], tensor.type->dims[d].size, "%s", input->path);
  for (int64_t i = 0; i < stored_elements(stored); i++)
    tensor.data[i] = (double)values[i];
  return tensor;
}

/* The logits of the recorded tokens. */
static Tensor logits_of(Module *module, const Graph *graph,
                        const Checkpoint *checkpoint, const int32_t *tokens,
                        int64_t n) {
  Tensor *inputs = ARENA_ARRAY(module->arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role == ROLE_param) {
      inputs[i] = parameter(module, checkpoint, graph, input);
      continue;
    }
    inputs[i] = tensor_create(module->arena, graph_type(graph, input->value));
    for (int64_t k = 0; input->role == ROLE_data && k < n; k++)
      inputs[i].data[k] = tokens[k];
  }
  return run(graph, INTERP_f64, inputs)[0];
}

/* `dims` replaces the line of the map that gives sizes. Loaded by the map of
 * models/, the logits are those that were recorded; the way back gives every
 * bit again. */
static void check_hf(const char *name, const char *dims, const Override *sizes,
                     int n) {
  Module *module = module_create();
  const char *map = read_text(
      module,
      in_root(module, arena_printf(module->arena, "models/%s-hf.map", name)));
  const char *line = strstr(map, "\ndim ");
  cr_assert(line);
  map = arena_printf(module->arena, "%.*s\n%s\n%s", (int)(line - map), map,
                     dims, strchr(line + 1, '\n'));
  const char *files =
      in_root(module, arena_printf(module->arena, "tests/reference/%s", name));
  Checkpoint theirs = open_checkpoint(
      module, arena_printf(module->arena, "%s_hf.safetensors", files));
  Checkpoint ours = convert(module, map, &theirs, 0);
  Recorded recorded;
  Status status = recorded_open(
      module->arena,
      arena_printf(module->arena, "%s_hf_logits.safetensors", files),
      &recorded);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  const StoredTensor *tokens = recorded_find(&recorded, "", "tokens");
  const StoredTensor *logits = recorded_find(&recorded, "", "logits");
  Tensor got = logits_of(module, net_graph(module, name, sizes, n), &ours,
                         (const int32_t *)(recorded.data + tokens->begin),
                         stored_elements(tokens));
  const double *wanted = recorded_values(module->arena, &recorded, logits);
  cr_assert_eq(type_elements(got.type), stored_elements(logits));
  double error = relative_error(got.data, wanted, stored_elements(logits));
  cr_expect(error < 1e-12, "%s: logits are off by %.3g", name, error);
  Checkpoint back = convert(module, map, &ours, 1);
  expect_same(module, &theirs, &back);
  checkpoint_close(&theirs);
  checkpoint_close(&ours);
  checkpoint_close(&back);
}

Test(convert, gpt2_as_hugging_face_has_it) {
  static const Override sizes[] = {
      {"V", "256"}, {"C", "16"}, {"H", "2"}, {"T", "12"}, {"L", "2"}};
  check_hf("gpt2", "dim D = 8", sizes, ARRAY_LENGTH(sizes));
}

Test(convert, llama_as_hugging_face_has_it) {
  static const Override sizes[] = {{"V", "40"}, {"C", "24"}, {"G", "2"},
                                   {"H", "3"},  {"D", "4"},  {"F", "20"},
                                   {"T", "10"}, {"L", "2"}};
  check_hf("llama", "dim G = 2, D = 4", sizes, ARRAY_LENGTH(sizes));
}
