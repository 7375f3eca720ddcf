/*
 * candidate.c -- writes a candidate as a plan file, and in words.
 *
 *     sizes 16, 8; dims {}, {F, H}      mesh { data = 16; tensor = 8 }
 *     zero 1, 4 micro-batches      =>   plan { microbatches = 4; zero = 1
 *                                              shard F, H over tensor }
 *
 * The batch takes the axes that shard nothing else, without a line; where they
 * do not divide it, it may stay whole.  Lines that a person wrote follow as
 * they are.
 */
#include "planner/candidate.h"

#include <string.h>

static const char *const sizes[N_SIZES] = {NULL, "1MB", "5MB", "100MB",
                                           "400MB"};

/* ---- axes ---- */

static bool has_mesh(const Space *space) {
  const Pins *pins = space->input->pins;
  return pins && pins_have_mesh(pins);
}

static const char *role_of(const Space *space, DimSet dims) {
  const char *role = dims == 0 ? "data" : "sequence";
  for (int i = 0; i < space->n_dims; i++) {
    if (!(dims >> i & 1)) continue;
    if (space->dims[i].is_of_experts) return "expert";
    if (!space->dims[i].is_of_data || space->dims[i].is_contracted)
      role = "tensor";
  }
  return role;
}

const char *mesh_axis_name(Arena *arena, const char *role, int n_inside) {
  static const char *const places[] = {"", "_outer", "_outermost"};
  _Static_assert(ARRAY_LENGTH(places) == MOST_OPEN_AXES, "a place for each");
  ASSERT(n_inside < MOST_OPEN_AXES);
  return arena_printf(arena, "%s%s", role, places[n_inside]);
}

static const char *axis_name(const Space *space, const Candidate *c, int axis) {
  if (c->axis_names) return c->axis_names[axis];
  if (has_mesh(space)) return space->input->pins->axes.data[axis].name;
  const char *role = role_of(space, c->dims[axis]);
  int n_inside = 0;
  for (int a = axis + 1; a < c->n_axes; a++)
    n_inside += strcmp(role, role_of(space, c->dims[a])) == 0;
  return mesh_axis_name(space->input->arena, role, n_inside);
}

Candidate candidate_merged(const Space *space, const Candidate *candidate) {
  Candidate out = *candidate;
  out.n_axes = 0;
  out.border = 0;
  if (has_mesh(space) || candidate->lines) return *candidate;
  for (int a = 0; a < candidate->n_axes; a++) {
    int last = out.n_axes - 1;
    AxisSet is_border = candidate->border >> a & 1;
    bool is_alike = last >= 0 && out.dims[last] == candidate->dims[a] &&
                    (out.border >> last & 1) == is_border;
    out.border |= is_alike ? 0 : (AxisSet)(is_border << out.n_axes);
    if (is_alike) {
      out.sizes[last] *= candidate->sizes[a];
      continue;
    }
    out.sizes[out.n_axes] = candidate->sizes[a];
    out.dims[out.n_axes++] = candidate->dims[a];
  }
  return out;
}

static bool shards_batch(const Candidate *c, int axis) {
  return c->has_batch_line ? c->batch >> axis & 1 : c->dims[axis] == 0;
}

int64_t candidate_batch_shards(const Candidate *candidate) {
  int64_t n = 1;
  for (int a = 0; a < candidate->n_axes; a++)
    if (shards_batch(candidate, a)) n *= candidate->sizes[a];
  return n;
}

bool candidate_is_even(const Space *space, const Candidate *candidate) {
  if (candidate->lines) return true; /* by the sizes of its units */
  const Pins *pins = space->input->pins;
  /* A written line may keep an axis from the batch, or the batch from an axis.
   */
  if (pins && pins->shards.n + pins->of_paths.n > 0) return true;
  int64_t batch = pins ? pins->batch : 0;
  int64_t shards = candidate_batch_shards(candidate) * candidate->microbatches;
  return candidate->microbatches == 1 || batch % shards == 0;
}

/* ---- the plan file ---- */

/* "tensor", "(tensor_outer, tensor)" or "none". */
static void add_axes(Text *out, const Space *space, const Candidate *c,
                     AxisSet axes) {
  int n = 0, k = 0;
  for (int a = 0; a < c->n_axes; a++) n += axes >> a & 1;
  text_add(out, n == 0 ? "none" : n > 1 ? "(" : "");
  for (int a = 0; a < c->n_axes; a++)
    if (axes >> a & 1)
      text_printf(out, "%s%s", k++ ? ", " : "", axis_name(space, c, a));
  if (n > 1) text_add(out, ")");
}

static void add_shard_line(Text *out, const Space *space, const Candidate *c,
                           int dim) {
  AxisSet axes = 0;
  for (int a = 0; a < c->n_axes; a++)
    if (c->dims[a] >> dim & 1) axes |= (AxisSet)(1u << a);
  if (!axes) return;
  text_printf(out, "  shard %s over ", space->dims[dim].name);
  add_axes(out, space, c, axes);
  text_add(out, "\n");
}

static void add_batch_line(Text *out, const Space *space, const Candidate *c) {
  const Pins *pins = space->input->pins;
  if (!c->has_batch_line || !pins || !pins->batch_dim || c->lines) return;
  text_printf(out, "  shard %s over ", pins->batch_dim);
  add_axes(out, space, c, c->batch);
  text_add(out, "\n");
}

typedef struct WrittenLines {
  VEC(Span) spans;
} WrittenLines;

static void add_span(Arena *arena, WrittenLines *lines, Span span) {
  if (!span.source) return;
  for (int i = 0; i < lines->spans.n; i++)
    if (lines->spans.data[i].source == span.source &&
        lines->spans.data[i].begin == span.begin)
      return;
  vec_push(arena, &lines->spans, span);
}

/* Every line but those of settings, as it was written. */
static void add_written_lines(Text *out, Arena *arena, const Pins *pins) {
  WrittenLines lines = {0};
  if (!pins) return;
  for (int i = 0; i < pins->shards.n; i++)
    add_span(arena, &lines, pins->shards.data[i].span);
  for (int i = 0; i < pins->of_paths.n; i++)
    if (!pins->of_paths.data[i].pin.is_annotation)
      add_span(arena, &lines, pins->of_paths.data[i].pin.span);
  for (int i = 0; i < lines.spans.n; i++)
    text_printf(out, "  %s\n", span_text(arena, lines.spans.data[i]));
}

static void add_size(Text *out, const char *name, const PinNumber *pin,
                     int size) {
  if (pin && pin->is_set)
    text_printf(out, "  %s = %lldB\n", name, (long long)pin->value);
  else if (size > 0)
    text_printf(out, "  %s = %s\n", name, sizes[size]);
}

/* Units may copy a parameter over any axis, so their plans shard it over all;
 * by default, and where somebody wrote the level alone, it is sharded over
 * those of the batch. */
static AxisSet zero_axes(const Space *space, const Candidate *c) {
  const Pins *pins = space->input->pins;
  AxisSet axes = 0;
  if (pins && pins->zero.is_set) return 0;
  if (c->zero_axes) return c->zero_axes;
  for (int a = 0; a < c->n_axes && c->lines; a++)
    if (c->sizes[a] > 1) axes |= (AxisSet)(1u << a);
  return axes;
}

static void add_zero(Text *out, const Space *space, const Candidate *c) {
  AxisSet axes = zero_axes(space, c);
  text_printf(out, "  zero = %d", c->zero);
  if (axes) text_add(out, " over ");
  if (axes) add_axes(out, space, c, axes);
  text_add(out, "\n");
}

static void add_sync(Text *out, const Space *space, const Candidate *c) {
  const Pins *pins = space->input->pins;
  if (pins && pins->border.n_axes > 0) {
    text_printf(out, "  %s\n",
                span_text(space->input->arena, pins->border.span));
  } else if (c->border) {
    text_add(out, "  sync = hierarchical over ");
    add_axes(out, space, c, c->border);
    text_add(out, "\n");
  }
}

static void add_settings(Text *out, const Space *space, const Candidate *c) {
  static const char *const attention[] = {[ATTENTION_gather] = "gather",
                                          [ATTENTION_ring] = "ring",
                                          [ATTENTION_ulysses] = "ulysses"};
  const Pins *pins = space->input->pins;
  if (c->groups > 0)
    text_printf(out, "  schedule = %s\n", c->schedule);
  else if (pins && pins->schedule && !pins->list)
    text_printf(out, "  schedule = %s\n", pins->schedule);
  if (c->microbatches > 1)
    text_printf(out, "  microbatches = %lld\n", (long long)c->microbatches);
  if (pins && pins->zero_over.n_axes > 0)
    text_printf(out, "  %s\n", span_text(space->input->arena, pins->zero.span));
  else if (c->zero > 0)
    add_zero(out, space, c);
  if (c->attention != ATTENTION_open)
    text_printf(out, "  attention = %s\n", attention[c->attention]);
  if (pins && pins->reduces_bf16) text_add(out, "  reduce = bf16\n");
  if (pins && pins->compress)
    text_printf(
        out, "  compress = %s\n",
        plan_compress_text(out->arena, pins->compress, pins->compress_rank));
  add_sync(out, space, c);
  add_size(out, "bucket", pins ? &pins->bucket_bytes : NULL, c->bucket);
  add_size(out, "prefetch", pins ? &pins->prefetch_bytes : NULL, c->prefetch);
  if (pins && pins->memory_bytes.is_set)
    text_printf(out, "  memory = %lldB\n", (long long)pins->memory_bytes.value);
}

const char *candidate_text(const Space *space, const Candidate *c) {
  Arena *arena = space->input->arena;
  Text out = text_create(arena);
  text_add(&out, "mesh {\n");
  if (c->groups > 0 && !c->stages)
    text_printf(&out, "  pipe = %d\n", c->groups);
  for (int a = 0; a < c->n_axes; a++)
    text_printf(&out, "  %s = %lld\n", axis_name(space, c, a),
                (long long)c->sizes[a]);
  const Pins *pins = space->input->pins;
  text_printf(&out, "}\n\nplan %s{\n",
              pins && pins->model ? arena_printf(arena, "%s ", pins->model)
                                  : "");
  add_settings(&out, space, c);
  add_batch_line(&out, space, c);
  for (int i = 0; i < space->n_dims && !c->lines; i++)
    add_shard_line(&out, space, c, i);
  if (c->groups > 0) text_add(&out, c->cuts);
  if (c->lines) text_add(&out, c->lines);
  for (int i = 0; i < space->n_remats; i++)
    if (c->remats >> i & 1) text_printf(&out, "  remat %s\n", space->remats[i]);
  for (int i = 0; i < space->n_layers; i++)
    if (c->layers >> i & 1) text_printf(&out, "  remat %s\n", space->layers[i]);
  add_written_lines(&out, arena, pins); /* later ones win */
  text_add(&out, "}\n");
  return text_string(&out);
}

/* ---- words ---- */

const char *candidate_words(const Space *space, const Candidate *c) {
  Text out = text_create(space->input->arena);
  if (c->stages)
    text_add(&out, c->stages);
  else if (c->groups > 0)
    text_printf(&out, "pipe %d", c->groups);
  for (int a = 0; a < c->n_axes; a++)
    text_printf(&out, "%s%s %lld", a || c->groups > 0 ? " x " : "",
                axis_name(space, c, a), (long long)c->sizes[a]);
  if (c->n_axes == 0 && c->groups == 0) text_add(&out, "one rank");
  if (c->groups > 0) text_printf(&out, ", %s", c->schedule);
  if (c->zero > 0) text_printf(&out, ", ZeRO %d", c->zero);
  if (c->zero > 0 && c->zero_axes) {
    text_add(&out, " over ");
    add_axes(&out, space, c, c->zero_axes);
  }
  if (c->border) {
    text_add(&out, ", hierarchical sums over ");
    add_axes(&out, space, c, c->border);
  }
  if (c->microbatches > 1)
    text_printf(&out, ", %lld micro-batches", (long long)c->microbatches);
  if (c->attention == ATTENTION_ring) text_add(&out, ", ring attention");
  if (c->attention == ATTENTION_ulysses) text_add(&out, ", ulysses");
  for (int i = 0; i < space->n_remats; i++)
    if (c->remats >> i & 1)
      text_printf(&out, ", %s recomputed", space->remats[i]);
  for (int i = 0; i < space->n_layers; i++)
    if (c->layers >> i & 1)
      text_printf(&out, ", %s recomputed", space->layers[i]);
  return text_string(&out);
}
