/*
 * space.c -- numbers the plans that lines about dims, operators, ZeRO,
 * rematerialisation and micro-batches can say, and writes them as text.
 *
 *     digits  zero  micro-batches  remat  order   B  C  F   mlp!dot[0]
 *             1     2              0      0       1  0  2   3
 *
 * Before them come two digits for a schedule and for cuts, which plans without
 * stages have one of (stages.c).
 *
 * On a mesh of n axes a dim has 2^n digits, a bit for each axis that shards it,
 * and an operator on d dims 1 + (d + 1)^n: no line, or for each axis one of the
 * dims or none.  Where two dims share an axis, the later line wins in tensors
 * that have both, so these plans exist in two orders of their lines.  Whether a
 * plan can hold is for the compiler to say.
 */
#include <limits.h>
#include <string.h>

#include "tests/random/plan_maker.h"
#include "tests/sound/sound.h"

enum {
  DIGIT_schedule, /* before that of cuts, whose radix depends on it */
  DIGIT_cuts,
  DIGIT_zero,
  DIGIT_microbatches,
  DIGIT_remats,
  DIGIT_order
};
_Static_assert(DIGIT_order + 1 == SOUND_SETTINGS, "digits of settings");

static const char *const axis_names[SOUND_AXES] = {"a", "b", "c"};

/* ---- what a model has ---- */

static void add_mesh(SoundSpace *space, int n, const int64_t *sizes) {
  if (space->n_meshes == SOUND_MESHES) return;
  SoundMesh *mesh = &space->meshes[space->n_meshes++];
  *mesh = (SoundMesh){.n_axes = n};
  memcpy(mesh->sizes, sizes, (size_t)n * sizeof *sizes);
}

/* Every way to write the ranks as a product of up to three sizes above 1. */
static void add_meshes(SoundSpace *space, int n, int64_t *sizes, int64_t left) {
  sizes[n] = left;
  if (left > 1 || n == 0) add_mesh(space, n + (left > 1), sizes);
  for (int64_t size = 2; n + 1 < SOUND_AXES && size * 2 <= left; size++) {
    if (left % size != 0) continue;
    sizes[n] = size;
    add_meshes(space, n + 1, sizes, left / size);
  }
}

/* "block[3].mlp!dot[0]" is "block.mlp!dot[0]": those of all blocks. */
static const char *without_indices(Arena *arena, const char *text) {
  Text out = text_create(arena);
  while (*text) {
    size_t n = *text == '[' ? strcspn(text, "]") + 1 : 0;
    bool is_layer = n > 0 && (text[n] == '.' || text[n] == '!');
    if (!is_layer) text_add_n(&out, text, 1);
    text += is_layer ? n : 1;
  }
  return text_string(&out);
}

static void add_operator(SoundSpace *space, const Graph *graph, int id,
                         bool is_of_all) {
  const char *path = graph->nodes.data[id]->path;
  const char *text = plan_operator(space->arena, path);
  if (is_of_all) text = without_indices(space->arena, text);
  for (int i = 0; i < space->n_operators; i++)
    if (!strcmp(space->operators[i].text, text)) return;
  if (space->n_operators == SOUND_OPERATORS) return;
  SoundOperator *product = &space->operators[space->n_operators++];
  const Dim *dims[2 * MAX_RANK];
  product->text = text;
  product->n_dims = plan_product_dims(graph, id, dims);
  for (int i = 0; i < product->n_dims; i++) product->dims[i] = dims[i]->name;
}

/* A layer of the net: "mlp[0]", or "mlp" for all of this name. */
static void add_remat(SoundSpace *space, const char *path, bool is_of_all) {
  const char *dot = path ? strchr(path, '.') : NULL;
  if (!dot || !strncmp(path, "loss", 4)) return;
  const char *text =
      arena_printf(space->arena, "%.*s", (int)(dot - path), path);
  if (is_of_all)
    text = arena_printf(space->arena, "%.*s", (int)strcspn(text, "["), text);
  for (int i = 0; i < space->n_remats; i++)
    if (!strcmp(space->remats[i], text)) return;
  if (space->n_remats < SOUND_REMATS) space->remats[space->n_remats++] = text;
}

static void look_at(SoundSpace *space, const Graph *graph) {
  enum { FEW = 8 };
  PlanSubject subject = {.graph = graph, .batch = space->batch_dim};
  PlanMaker m = {.arena = space->arena, .subject = &subject, .graph = graph};
  look_at_graph(&m);
  for (int i = 0; i < m.dims.n && space->n_dims < SOUND_DIMS; i++)
    if (m.dims.data[i].size > 1)
      space->dims[space->n_dims++] = m.dims.data[i].name;
  bool is_large = m.products.n > FEW;
  for (int i = 0; i < m.products.n; i++)
    add_operator(space, graph, m.products.data[i], is_large);
  for (int i = 0; i < m.values.n; i++)
    add_remat(space, graph->nodes.data[m.values.data[i]]->path, is_large);
}

SoundSpace sound_space(Arena *arena, const Compilation *loaded, int64_t ranks) {
  const Pins *pins = loaded->pins;
  SoundSpace space = {.arena = arena,
                      .ranks = ranks,
                      .batch = pins->batch,
                      .batch_dim = pins->batch_dim,
                      .n_zeros = ranks > 1 ? 4 : 1,
                      .zeros = {0, 1, 2, 3},
                      .pinned = ""};
  int64_t sizes[SOUND_AXES];
  add_meshes(&space, 0, sizes, ranks);
  if (pins->batch_dim) space.dims[space.n_dims++] = pins->batch_dim;
  for (int64_t m = 1; m <= pins->batch; m++)
    if (pins->batch % m == 0 && space.n_microbatches < SOUND_MICROBATCHES)
      space.microbatches[space.n_microbatches++] = m;
  if (space.n_microbatches == 0) space.microbatches[space.n_microbatches++] = 1;
  look_at(&space, loaded->model->train);
  return space;
}

void sound_narrow(SoundSpace *space, int n_dims, int n_remats) {
  int most = n_dims + (space->batch_dim != NULL);
  if (space->n_dims > most) space->n_dims = most;
  if (space->n_remats > n_remats) space->n_remats = n_remats;
  space->n_operators = 0;
}

/* ---- digits ---- */

static int n_digits(const SoundSpace *space) {
  return SOUND_SETTINGS + space->n_dims + space->n_operators;
}

static const SoundSchedule *schedule_of(const SoundSpace *space,
                                        const SoundPlan *plan) {
  return sound_schedule(space, &space->meshes[plan->mesh],
                        plan->digits[DIGIT_schedule]);
}

/* Digits before this one are those of the plan. */
static int radix_of(const SoundSpace *space, const SoundPlan *plan, int digit) {
  const SoundMesh *mesh = &space->meshes[plan->mesh];
  int n_axes = mesh->n_axes, at = digit - SOUND_SETTINGS, ways = 1;
  switch (digit) {
  case DIGIT_schedule: return sound_n_schedules(space, mesh);
  case DIGIT_cuts:
    return (int)sound_n_cuts(space, mesh, schedule_of(space, plan));
  case DIGIT_zero: return space->n_zeros;
  case DIGIT_microbatches: return space->n_microbatches;
  case DIGIT_remats: return 1 << space->n_remats;
  case DIGIT_order: return n_axes > 0 ? 2 : 1;
  }
  if (at < space->n_dims) return 1 << n_axes;
  int n_dims = space->operators[at - space->n_dims].n_dims;
  for (int a = 0; a < n_axes; a++) ways *= n_dims + 1;
  return n_axes > 0 ? 1 + ways : 1;
}

/* No axis shards two dims, so the order of the lines says nothing. */
static bool is_repeated(const SoundSpace *space, const SoundPlan *plan) {
  int used = 0;
  if (!plan->digits[DIGIT_order]) return false;
  for (int d = 0; d < space->n_dims; d++) {
    int axes = plan->digits[SOUND_SETTINGS + d];
    if (used & axes) return false;
    used |= axes;
  }
  return true;
}

static int64_t times(int64_t a, int64_t b) {
  int64_t out;
  return __builtin_mul_overflow(a, b, &out) ? INT64_MAX : out;
}

static int64_t count_stages(const SoundSpace *space, const SoundMesh *mesh) {
  int64_t n = 0;
  for (int i = 0; i < sound_n_schedules(space, mesh); i++)
    n += sound_n_cuts(space, mesh, sound_schedule(space, mesh, i));
  return n;
}

static int64_t count_mesh(const SoundSpace *space, int mesh) {
  SoundPlan any = {.mesh = mesh};
  int64_t n = count_stages(space, &space->meshes[mesh]);
  int64_t in_both_orders = 1, in_one = 1;
  for (int a = 0; a < space->meshes[mesh].n_axes; a++) {
    in_both_orders = times(in_both_orders, (int64_t)1 << space->n_dims);
    in_one *= space->n_dims + 1;
  }
  for (int i = DIGIT_zero; i < n_digits(space); i++) {
    bool is_dim = i >= SOUND_SETTINGS && i < SOUND_SETTINGS + space->n_dims;
    if (i != DIGIT_order && !is_dim) n = times(n, radix_of(space, &any, i));
  }
  int64_t lines = times(in_both_orders, 2);
  return times(n, lines == INT64_MAX ? lines : lines - in_one);
}

int64_t sound_count(const SoundSpace *space) {
  int64_t n = 0;
  for (int mesh = 0; mesh < space->n_meshes; mesh++)
    if (__builtin_add_overflow(n, count_mesh(space, mesh), &n))
      return INT64_MAX;
  return n;
}

static bool next_digits(const SoundSpace *space, SoundPlan *plan) {
  for (int i = n_digits(space) - 1; i >= 0; i--) {
    if (++plan->digits[i] < radix_of(space, plan, i)) return true;
    plan->digits[i] = 0;
  }
  return ++plan->mesh < space->n_meshes;
}

bool sound_next(const SoundSpace *space, SoundPlan *plan) {
  while (next_digits(space, plan))
    if (!is_repeated(space, plan)) return true;
  return false;
}

SoundPlan sound_random(const SoundSpace *space, Choices *choices) {
  SoundPlan plan = {.mesh = choose(choices, space->n_meshes)};
  for (int i = 0; i < n_digits(space); i++) {
    /* A line about every operator leaves nothing to those about dims.  Cases
     * without stages make the same choices as ever. */
    bool is_operator = i >= SOUND_SETTINGS + space->n_dims;
    bool is_of_stages = i == DIGIT_schedule || i == DIGIT_cuts;
    if (is_of_stages && !space->meshes[plan.mesh].groups) continue;
    if (!is_operator || choose(choices, 3) == 0)
      plan.digits[i] = choose(choices, radix_of(space, &plan, i));
  }
  return plan;
}

SoundPlan sound_neighbour(const SoundSpace *space, Choices *choices,
                          const SoundPlan *plan) {
  SoundPlan out = *plan;
  if (choose(choices, 8) == 0) out.mesh = choose(choices, space->n_meshes);
  for (int n = 1 + choose(choices, 2); n > 0; n--) {
    int at = choose(choices, n_digits(space));
    out.digits[at] = choose(choices, INT_MAX);
  }
  for (int i = 0; i < n_digits(space); i++)
    out.digits[i] %= radix_of(space, &out, i);
  return out;
}

SoundChoice sound_choice(const SoundSpace *space, const SoundPlan *plan) {
  const int *dims = plan->digits + SOUND_SETTINGS;
  int batch = 0, others = 0;
  SoundChoice out = {.microbatches =
                         space->microbatches[plan->digits[DIGIT_microbatches]],
                     .remats = (unsigned)plan->digits[DIGIT_remats]};
  for (int d = 0; d < space->n_dims; d++) {
    bool is_batch =
        space->batch_dim && !strcmp(space->dims[d], space->batch_dim);
    *(is_batch ? &batch : &others) |= dims[d];
  }
  out.is_batch_shared = (batch & others) != 0;
  for (int i = 0; i < space->n_operators; i++)
    out.has_operator_lines |= dims[space->n_dims + i] > 0;
  return out;
}

/* ---- text ---- */

/* "a", "(a, b)" or "none". */
static void add_axes(Text *out, unsigned axes) {
  int n = 0;
  for (int a = 0; a < SOUND_AXES; a++) {
    if (!(axes >> a & 1)) continue;
    bool is_first = n++ == 0, is_only = axes >> a == 1;
    text_printf(out, "%s%s", is_first ? is_only ? "" : "(" : ", ",
                axis_names[a]);
  }
  if (n > 1) text_add(out, ")");
  if (n == 0) text_add(out, "none");
}

static void add_dim_line(Text *out, const SoundSpace *space, const char *dim,
                         unsigned axes) {
  /* Without a line the batch takes the axes that are left. */
  if (axes == 0 && strcmp(dim, space->batch_dim) != 0) return;
  text_printf(out, "  shard %s over ", dim);
  add_axes(out, axes);
  text_add(out, "\n");
}

static void add_operator_line(Text *out, const SoundOperator *product,
                              const SoundMesh *mesh, int digit) {
  unsigned axes[2 * MAX_RANK] = {0};
  bool is_any = false;
  if (digit-- == 0) return;
  for (int a = 0; a < mesh->n_axes; a++, digit /= product->n_dims + 1) {
    int dim = digit % (product->n_dims + 1) - 1;
    if (dim >= 0) axes[dim] |= 1u << a;
  }
  text_printf(out, "  shard %s: ", product->text);
  for (int d = 0; d < product->n_dims; d++) {
    if (axes[d] == 0) continue;
    text_printf(out, "%s%s over ", is_any ? ", " : "", product->dims[d]);
    add_axes(out, axes[d]);
    is_any = true;
  }
  if (!is_any) text_printf(out, "%s over none", product->dims[0]);
  text_add(out, "\n");
}

static void add_lines(Text *out, const SoundSpace *space,
                      const SoundPlan *plan) {
  const int *dims = plan->digits + SOUND_SETTINGS;
  const int *operators = dims + space->n_dims;
  const SoundMesh *mesh = &space->meshes[plan->mesh];
  int n = mesh->n_axes > 0 ? space->n_dims : 0;
  for (int i = 0; i < n; i++) {
    int d = plan->digits[DIGIT_order] ? n - 1 - i : i;
    add_dim_line(out, space, space->dims[d], (unsigned)dims[d]);
  }
  for (int i = 0; i < space->n_operators; i++)
    add_operator_line(out, &space->operators[i], mesh, operators[i]);
  for (int i = 0; i < space->n_remats; i++)
    if (plan->digits[DIGIT_remats] >> i & 1)
      text_printf(out, "  remat %s\n", space->remats[i]);
}

const char *sound_mesh_text(const SoundSpace *space, const SoundMesh *mesh) {
  Text out = text_create(space->arena);
  bool has_pipe = mesh->groups && mesh->groups->are_equal;
  if (mesh->groups ? !has_pipe : mesh->n_axes == 0) return "";
  text_add(&out, "mesh {");
  if (has_pipe) text_printf(&out, " pipe = %d", mesh->groups->n);
  for (int a = 0; a < mesh->n_axes; a++)
    text_printf(&out, "%s %s = %lld", a || has_pipe ? ";" : "", axis_names[a],
                (long long)mesh->sizes[a]);
  text_add(&out, " }\n");
  return text_string(&out);
}

const char *sound_text(const SoundSpace *space, const SoundPlan *plan) {
  Text out = text_create(space->arena);
  int64_t m = space->microbatches[plan->digits[DIGIT_microbatches]];
  int zero = space->zeros[plan->digits[DIGIT_zero]];
  const SoundMesh *mesh = &space->meshes[plan->mesh];
  text_add(&out, sound_mesh_text(space, mesh));
  text_add(&out, "plan {\n");
  sound_stage_lines(&out, space, mesh, schedule_of(space, plan),
                    plan->digits[DIGIT_cuts]);
  if (m > 1) text_printf(&out, "  microbatches = %lld\n", (long long)m);
  if (zero > 0) text_printf(&out, "  zero = %d\n", zero);
  add_lines(&out, space, plan);
  text_add(&out, space->pinned);
  text_add(&out, "}\n");
  return text_string(&out);
}

/* ---- pins ---- */

static void pin_line(SoundSpace *space, const Text *line) {
  Text copy = *line;
  space->pinned =
      arena_printf(space->arena, "%s%s", space->pinned, text_string(&copy));
}

void sound_pin_mesh(SoundSpace *space, int mesh) {
  space->meshes[0] = space->meshes[mesh];
  space->n_meshes = 1;
  space->is_mesh_pinned = true;
}

/* Returns whether the mesh would have a plan under this schedule alone. */
static bool allows_schedule(const SoundSpace *space, SoundSchedule only,
                            int mesh) {
  SoundSpace with = *space;
  with.schedules[0] = only;
  with.n_schedules = 1;
  return sound_n_schedules(&with, &space->meshes[mesh]) > 0;
}

bool sound_pin_schedule(SoundSpace *space, int schedule) {
  Text line = text_create(space->arena);
  int n_meshes = 0;
  SoundSchedule only = space->schedules[schedule];
  for (int i = 0; i < space->n_meshes; i++)
    n_meshes += allows_schedule(space, only, i);
  if (n_meshes == 0) return false;
  n_meshes = 0;
  for (int i = 0; i < space->n_meshes; i++)
    if (allows_schedule(space, only, i))
      space->meshes[n_meshes++] = space->meshes[i];
  space->n_meshes = n_meshes;
  space->schedules[0] = only;
  space->n_schedules = 1;
  space->is_schedule_pinned = true;
  text_printf(&line, "  schedule = %s\n", only.text);
  pin_line(space, &line);
  return true;
}

void sound_pin_cuts(SoundSpace *space, int64_t cuts) {
  Text lines = text_create(space->arena);
  sound_stage_lines(&lines, space, &space->meshes[0], &space->schedules[0],
                    cuts);
  pin_line(space, &lines);
  space->are_cuts_pinned = true;
}

void sound_pin_zero(SoundSpace *space, int zero) {
  Text line = text_create(space->arena);
  text_printf(&line, "  zero = %d\n", zero);
  pin_line(space, &line);
  space->n_zeros = 1;
}

void sound_pin_microbatches(SoundSpace *space, int64_t microbatches) {
  Text line = text_create(space->arena);
  text_printf(&line, "  microbatches = %lld\n", (long long)microbatches);
  pin_line(space, &line);
  space->n_microbatches = 1;
}

void sound_pin_dim(SoundSpace *space, int dim, unsigned axes) {
  Text line = text_create(space->arena);
  text_printf(&line, "  shard %s over ", space->dims[dim]);
  add_axes(&line, axes);
  text_add(&line, "\n");
  pin_line(space, &line);
  space->n_dims--;
  for (int d = dim; d < space->n_dims; d++) space->dims[d] = space->dims[d + 1];
}

void sound_pin_operator(SoundSpace *space, int product, int digit) {
  Text line = text_create(space->arena);
  add_operator_line(&line, &space->operators[product], &space->meshes[0],
                    digit);
  pin_line(space, &line);
  space->n_operators--;
  for (int i = product; i < space->n_operators; i++)
    space->operators[i] = space->operators[i + 1];
}

void sound_pin_remat(SoundSpace *space, int remat, bool is_computed_again) {
  Text line = text_create(space->arena);
  text_printf(&line, "  %s %s\n", is_computed_again ? "remat" : "keep",
              space->remats[remat]);
  pin_line(space, &line);
  space->n_remats--;
  for (int i = remat; i < space->n_remats; i++)
    space->remats[i] = space->remats[i + 1];
}
