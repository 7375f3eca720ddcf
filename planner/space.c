/*
 * space.c -- finds the space of a model: which dims an axis may shard, which
 * repeats may be recomputed, and of which factors the axes are.
 *
 *     wq [C, H]  w1 [C, F]  table [V, C]      sets {C} and {F, H, V}: sharded
 *                                             over one axis, no parameter has
 *                                             two dims of a set
 *     x  [B, T]                               a set of its own for T
 *
 * Nothing here knows what a model is: names are those of its dims and paths.
 */
#include "planner/space.h"

#include "planner/loads.h"

#include <stdlib.h>
#include <string.h>

/* ---- dims ---- */

static int find_dim(const Space *space, Name name) {
  for (int i = 0; i < space->n_dims; i++)
    if (space->dims[i].name == name) return i;
  return -1;
}

/* A name that a line of the plan shards already. */
static bool is_pinned(const Pins *pins, Name name) {
  for (int i = 0; pins && i < pins->shards.n; i++)
    if (pins->shards.data[i].dim == name) return true;
  return false;
}

static void add_dim(Space *space, const Dim *dim, int64_t elements,
                    bool is_of_data) {
  const Pins *pins = space->input->pins;
  int at = find_dim(space, dim->name);
  if (at < 0) {
    if (dim->size < 2 || (pins && dim->name == pins->batch_dim) ||
        is_pinned(pins, dim->name) || space->n_dims == MOST_DIMS)
      return;
    at = space->n_dims++;
    space->dims[at] = (SpaceDim){.name = dim->name, .size = dim->size};
  }
  space->dims[at].elements += elements;
  space->dims[at].is_of_data |= is_of_data;
}

static void mark_contracted(Space *space, Name name) {
  int at = find_dim(space, name);
  if (at >= 0) space->dims[at].is_contracted = true;
}

static const PinTensor *find_tensor(const Pins *pins, Name path) {
  for (int i = 0; pins && i < pins->tensors.n; i++)
    if (pins->tensors.data[i].path == path) return &pins->tensors.data[i];
  return NULL;
}

/* The dims of matrices that products sum over, with those of callers for which
 * the dim of a generic layer stands. */
static void find_contracted(Space *space) {
  const Graph *graph = space->input->train;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    const PinTensor *tensor = find_tensor(space->input->pins, input->path);
    for (int d = 0; d < type->rank; d++) {
      if (!(input->contracts >> d & 1)) continue;
      mark_contracted(space, type->dims[d].name);
      for (int k = 0; tensor && k < tensor->stands_for[d].n; k++)
        mark_contracted(space, tensor->stands_for[d].names[k]);
    }
  }
}

/* The first dim to which a route sends tokens is that of the experts. */
static void find_experts(Space *space) {
  const Graph *graph = space->input->train;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    int n;
    if (node->op != OP_route) continue;
    const Name *to = node_names(node, ATTR_to, &n);
    int at = n > 0 ? find_dim(space, to[0]) : -1;
    if (at >= 0) space->dims[at].is_of_experts = true;
  }
}

static int compare_dims(const void *a, const void *b) {
  const SpaceDim *x = a, *y = b;
  if (x->is_of_data != y->is_of_data) return x->is_of_data ? 1 : -1;
  if (x->elements != y->elements) return x->elements > y->elements ? -1 : 1;
  return strcmp(x->name, y->name);
}

static void find_dims(Space *space) {
  const Graph *graph = space->input->train;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    bool is_param = input->role == ROLE_param;
    if (!is_param && input->role != ROLE_data) continue;
    for (int d = 0; d < type->rank; d++)
      add_dim(space, &type->dims[d], is_param ? type_elements(type) : 0,
              !is_param);
  }
  find_contracted(space);
  find_experts(space);
  qsort(space->dims, (size_t)space->n_dims, sizeof *space->dims, compare_dims);
}

/* ---- sets ---- */

/* Returns true if no parameter has both. */
static bool are_apart(const Space *space, int a, int b) {
  const Graph *graph = space->input->train;
  for (int i = 0; i < graph->inputs.n; i++) {
    if (graph->inputs.data[i].role != ROLE_param) continue;
    const Type *type = graph_type(graph, graph->inputs.data[i].value);
    if (type_find(type, space->dims[a].name) >= 0 &&
        type_find(type, space->dims[b].name) >= 0)
      return false;
  }
  return true;
}

static void add_set(Space *space, DimSet set) {
  for (int i = 0; i < space->n_sets; i++)
    if (space->sets[i] == set) return;
  if (space->n_sets < MOST_SETS) space->sets[space->n_sets++] = set;
}

/* The dim with all those of larger parameters first that go with it. */
static DimSet set_with(const Space *space, int first) {
  DimSet set = (DimSet)1 << first;
  for (int i = 0; i < space->n_dims; i++) {
    bool goes = i != first && !space->dims[i].is_of_data;
    for (int k = 0; k < space->n_dims && goes; k++)
      goes = !(set >> k & 1) || are_apart(space, i, k);
    if (goes) set |= (DimSet)1 << i;
  }
  return set;
}

static void find_sets(Space *space) {
  for (int i = 0; i < space->n_dims; i++)
    add_set(space,
            space->dims[i].is_of_data ? (DimSet)1 << i : set_with(space, i));
}

/* ---- repeats ---- */

/* "block" of "block[3].attn.q"; NULL: the path is in no repeat. */
static Name repeat_of(const Graph *graph, const char *path) {
  const char *open = path ? strchr(path, '[') : NULL;
  const char *close = open ? strchr(open, ']') : NULL;
  if (!close || close[1] != '.') return NULL;
  return name_intern_n(graph->module->names, path, (size_t)(open - path));
}

/* "encoder" of "encoder.conv[2]"; NULL: the path is of a repeat or of no layer.
 * The loss is no layer of the net. */
static Name layer_of(const Graph *graph, const char *path) {
  size_t n = path ? strcspn(path, ".[") : 0;
  if (n == 0 || path[n] != '.' || (n == 4 && !strncmp(path, "loss", n)))
    return NULL;
  return name_intern_n(graph->module->names, path, n);
}

/* Those with the most operators. */
static int most_named(const Space *space,
                      Name (*name_of)(const Graph *graph, const char *path),
                      int most, const char **out) {
  const Graph *graph = space->input->train;
  Map *counts = map_create(space->input->arena);
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    Name name = name_of(graph, graph->nodes.data[id]->path);
    if (name)
      map_put(counts, name, (void *)((intptr_t)map_get(counts, name) + 1));
  }
  while (n < most) {
    int best = -1;
    for (int i = 0; i < map_size(counts); i++)
      if (map_value_at(counts, i) &&
          (best < 0 || (intptr_t)map_value_at(counts, i) >
                           (intptr_t)map_value_at(counts, best)))
        best = i;
    if (best < 0) break;
    Name name = map_key_at(counts, best);
    out[n++] = name;
    map_put(counts, name, NULL);
  }
  return n;
}

/* ---- ranks ---- */

static void find_factors(Space *space) {
  int64_t left = space->input->ranks;
  for (int64_t p = 2; left > 1; p++) {
    if (p * p > left) p = left;
    for (; left % p == 0; left /= p)
      space->factors[space->n_factors++] = (int)p;
  }
}

int64_t pinned_axis_size(const Pins *pins, int64_t ranks, int axis) {
  int64_t left = ranks;
  bool is_first = true;
  for (int a = 0; a < pins->axes.n; a++) {
    int64_t size = pins->axes.data[a].size;
    if (size) left /= size;
    if (size == 0 && a < axis) is_first = false;
  }
  if (pins->axes.data[axis].size) return pins->axes.data[axis].size;
  return is_first ? left : 1;
}

const Mesh *pinned_mesh(Arena *arena, const Pins *pins, int64_t ranks) {
  Mesh *mesh = ARENA_NEW(arena, Mesh);
  if (!pins || !pins_have_mesh(pins)) return NULL;
  for (int a = 0; a < pins->axes.n; a++) {
    int64_t size = pinned_axis_size(pins, ranks, a);
    if (size == 1) continue;
    if (mesh->n_axes == MOST_MESH_AXES) return NULL;
    mesh->axes[mesh->n_axes++] =
        (MeshAxis){.name = pins->axes.data[a].name, .size = (int32_t)size};
  }
  return mesh;
}

static bool spans_groups(const SearchInput *input) {
  const Cluster *cluster = input->cluster;
  return cluster && cluster_group_of(cluster, input->ranks - 1, NULL) !=
                        &cluster->groups[0];
}

Space space_of(const SearchInput *input) {
  Space space = {.input = input,
                 .has_border = spans_groups(input),
                 .has_attention = graph_has_op(input->train, OP_softmax)};
  find_dims(&space);
  find_sets(&space);
  space.n_remats = most_named(&space, repeat_of, MOST_REMATS, space.remats);
  space.n_layers = most_named(&space, layer_of, MOST_LAYERS, space.layers);
  find_factors(&space);
  return space;
}

const char *space_words(const Space *space, const char *units) {
  Text text = text_create(space->input->arena);
  if (units) text_printf(&text, "%s; ", units);
  text_add(&text, "lines about the names");
  for (int i = 0; i < space->n_dims; i++)
    text_printf(&text, "%s %s", i ? "," : "", space->dims[i].name);
  text_printf(&text,
              " over meshes of up to %d axes on %lld ranks, ZeRO 0 to 3, "
              "micro-batches, attention, remat of whole repeats",
              MOST_OPEN_AXES, (long long)space->input->ranks);
  for (int i = 0; i < space->n_remats; i++)
    text_printf(&text, "%s %s", i ? "," : "", space->remats[i]);
  if (space->n_layers > 0)
    text_add(&text, ", remat of other layers where a plan does not fit");
  text_add(&text, ", sizes of buckets and prefetch");
  if (space->has_border)
    text_add(&text, ", sums of gradients inside of groups first");
  return text_string(&text);
}
