/*
 * make_tensors.c -- computes which new tensors a map makes of the tensors of a
 * checkpoint.
 *
 * letters.c says which values the letters take and which alternatives
 * are used.  For every rule and all values of its letters the sizes of dims
 * follow from the tensors that are there: a stored dim of n is a sum of
 * products with one unknown at a time.  Every dim then has a stride on both
 * sides, which describe the conversion completely.
 */
#include "convert/convert.h"

#include <stdlib.h>
#include <string.h>

typedef struct Maker {
  Conversion *out;
  Arena *arena;
  Letters *letters;
  Map *used;  /* tensors of the checkpoint that a rule takes */
  Map *sizes; /* Name to int64_t, of this instance of a rule */
  Map *made;  /* new names */
} Maker;

/* ---- messages ---- */

static void misfit(Maker *p, const char *kind, const char *name) {
  p->out->n_misfits++;
  text_printf(&p->out->misfits, "%-9s %s", kind, name);
}

static void add_stored(Text *out, const StoredTensor *tensor) {
  text_printf(out, " %s[", dtype_label(tensor->dtype));
  for (int d = 0; d < tensor->rank; d++)
    text_printf(out, "%s%lld", d ? ", " : "", (long long)tensor->size[d]);
  text_add(out, "]");
}

/* ---- sizes ---- */

static int64_t size_of(const Maker *p, Name dim) {
  const int64_t *size = map_get(p->sizes, dim);
  return size ? *size : 0;
}

static void set_size(Maker *p, Name dim, int64_t size) {
  map_put(p->sizes, dim, arena_copy(p->arena, &size, sizeof size));
}

/* n = sum over parts of the product of their dims, with at most one unknown.
 * Result: -1 if it cannot hold, 0 if more is unknown, 1 if it holds now. */
static int solve(Maker *p, const MapEntry *entry, int64_t n) {
  Name unknown = NULL;
  int64_t known = 0, factor = 0;
  for (int i = 0; i < entry->n_parts; i++) {
    const MapPart *part = &entry->parts[i];
    int64_t product = 1;
    Name here = NULL;
    for (int k = 0; k < part->n; k++) {
      int64_t size = size_of(p, part->factors[k]);
      if (size && __builtin_mul_overflow(product, size, &product)) return -1;
      if (size) continue;
      if (here || (unknown && unknown != part->factors[k])) return 0;
      here = unknown = part->factors[k];
    }
    int64_t *sum = here ? &factor : &known;
    if (__builtin_add_overflow(*sum, product, sum)) return -1;
  }
  if (!unknown) return known == n ? 1 : -1;
  if (n <= known || (n - known) % factor) return -1;
  set_size(p, unknown, (n - known) / factor);
  return 1;
}

/* False if the tensor cannot have these dims. */
static bool bind_sizes(Maker *p, const MapTerm *term,
                       const StoredTensor *tensor, bool *out_progress) {
  if (tensor->rank != term->rank) return false;
  for (int d = 0; d < term->rank; d++) {
    int before = map_size(p->sizes);
    if (solve(p, &term->dims[d], tensor->size[d]) < 0) return false;
    *out_progress = *out_progress || map_size(p->sizes) > before;
  }
  return true;
}

/* Sizes of the dims of a term as far as they are known, each once. */
static void add_known(Maker *p, const MapTerm *term, Text *out) {
  Map *seen = map_create(p->arena);
  for (int d = 0; d < term->rank; d++)
    for (int i = 0; i < term->dims[d].n_parts; i++)
      for (int k = 0; k < term->dims[d].parts[i].n; k++) {
        Name dim = term->dims[d].parts[i].factors[k];
        if (!size_of(p, dim) || map_has(seen, dim)) continue;
        text_printf(out, "%s%s = %lld", map_size(seen) ? ", " : " with ", dim,
                    (long long)size_of(p, dim));
        map_put(seen, dim, p);
      }
}

static void differs(Maker *p, const MapTerm *term, const StoredTensor *tensor) {
  Text *out = &p->out->misfits;
  misfit(p, "differs:", tensor->name);
  text_add(out, " is");
  add_stored(out, tensor);
  text_add(out, ", the map has ");
  tensormap_print_dims(out, term);
  add_known(p, term, out);
  text_add(out, "\n");
}

static int64_t part_size(const Maker *p, const MapPart *part) {
  int64_t product = 1;
  for (int i = 0; i < part->n; i++) product *= size_of(p, part->factors[i]);
  return product;
}

static int64_t entry_size(const Maker *p, const MapEntry *entry) {
  int64_t sum = 0;
  for (int i = 0; i < entry->n_parts; i++)
    sum += part_size(p, &entry->parts[i]);
  return sum;
}

/* ---- strides ---- */

/* The stride of a dim in a tensor, seen through part `piece` of split_dim. */
static int64_t stride_of(const Maker *p, const MapTerm *term, int split_dim,
                         int piece, Name dim) {
  int64_t stride = 1;
  for (int d = term->rank - 1; d >= 0; d--) {
    const MapPart *part = &term->dims[d].parts[d == split_dim ? piece : 0];
    int64_t inner = stride;
    for (int i = part->n - 1; i >= 0; i--) {
      if (part->factors[i] == dim) return inner;
      inner *= size_of(p, part->factors[i]);
    }
    stride *= entry_size(p, &term->dims[d]);
  }
  UNREACHABLE(); /* both sides have the same dims */
}

/* Where part `piece` begins. */
static int64_t offset_of(const Maker *p, const MapTerm *term, int split_dim,
                         int piece) {
  int64_t stride = 1, offset = 0;
  if (split_dim < 0) return 0;
  for (int d = split_dim + 1; d < term->rank; d++)
    stride *= entry_size(p, &term->dims[d]);
  for (int i = 0; i < piece; i++)
    offset += part_size(p, &term->dims[split_dim].parts[i]);
  return offset * stride;
}

typedef struct Place { /* a term, of which one piece is meant */
  const MapTerm *term;
  int split_dim, piece;
} Place;

/* Dims in the order of the new tensor, so that it is written in order. */
static Move make_move(const Maker *p, StoredPlace source, Place from,
                      Place to) {
  Move move = {.from = source.tensor, .file = source.file};
  for (int d = 0; d < to.term->rank; d++) {
    const MapPart *part =
        &to.term->dims[d].parts[d == to.split_dim ? to.piece : 0];
    for (int i = 0; i < part->n; i++) {
      Name dim = part->factors[i];
      int at = move.rank++;
      move.size[at] = size_of(p, dim);
      move.from_stride[at] =
          stride_of(p, from.term, from.split_dim, from.piece, dim);
      move.to_stride[at] = stride_of(p, to.term, to.split_dim, to.piece, dim);
    }
  }
  move.from_offset = offset_of(p, from.term, from.split_dim, from.piece);
  move.to_offset = offset_of(p, to.term, to.split_dim, to.piece);
  return move;
}

/* ---- one instance of a rule ---- */

typedef struct Instance {
  const MapRule *rule;
  const RuleValues *letters;
  int64_t at;           /* of its values */
  StoredPlace *sources; /* of the terms of the side that is read */
} Instance;

static const char *name_of(Maker *p, const Instance *instance,
                           const MapTerm *term) {
  return rule_name(p->arena, instance->letters, instance->at, term);
}

/* The moving average of a parameter, as evaluation and sampling take it, else
 * the tensor itself. A map may name the average, too: either way the parameter
 * is accounted for. */
static StoredPlace find_source(Maker *p, const char *name) {
  enum { PREFIX = sizeof "ema/" - 1 };
  const Checkpoint *from = p->out->from;
  StoredPlace named = {0}, average = {0};
  named.tensor = checkpoint_tensor(from, name, &named.file);
  if (named.tensor) map_put(p->used, named.tensor, p);
  if (!named.tensor || !from->is_own) return named;
  if (strncmp(name, "ema/", PREFIX) == 0) {
    StoredPlace raw = {0};
    raw.tensor = checkpoint_tensor(from, name + PREFIX, &raw.file);
    if (raw.tensor) map_put(p->used, raw.tensor, p);
    return named;
  }
  if (p->out->takes_raw) return named;
  average.tensor = checkpoint_tensor(
      from, arena_printf(p->arena, "ema/%s", name), &average.file);
  p->out->n_averages += average.tensor != NULL;
  return average.tensor ? average : named;
}

static bool find_sources(Maker *p, Instance *instance) {
  const MapSide *side = &instance->rule->side[p->out->side];
  bool found_all = true;
  instance->sources = ARENA_ARRAY(p->arena, StoredPlace, side->n);
  for (int i = 0; i < side->n; i++) {
    const char *name = name_of(p, instance, &side->terms[i]);
    StoredPlace *source = &instance->sources[i];
    *source = find_source(p, name);
    if (source->tensor) continue;
    misfit(p, "missing:", name);
    text_add(&p->out->misfits, "\n");
    found_all = false;
  }
  return found_all;
}

/* All sizes of the instance; lists what does not fit. */
static bool find_sizes(Maker *p, const Instance *instance) {
  const MapSide *side = &instance->rule->side[p->out->side];
  bool progress = true, fits = true;
  p->sizes = map_create(p->arena);
  for (int i = 0; i < p->out->map->dims.n; i++)
    set_size(p, p->out->map->dims.data[i].name, p->out->map->dims.data[i].size);
  while (progress && fits) {
    progress = false;
    for (int i = 0; i < side->n && fits; i++) {
      fits = bind_sizes(p, &side->terms[i], instance->sources[i].tensor,
                        &progress);
      if (!fits) differs(p, &side->terms[i], instance->sources[i].tensor);
    }
  }
  return fits;
}

/* Both sides have the same dims, so one of them suffices. */
static bool all_known(Maker *p, const Instance *instance) {
  const MapSide *side = &instance->rule->side[p->out->side];
  for (int i = 0; i < side->n; i++)
    for (int d = 0; d < side->terms[i].rank; d++) {
      const MapEntry *entry = &side->terms[i].dims[d];
      for (int j = 0; j < entry->n_parts; j++)
        for (int k = 0; k < entry->parts[j].n; k++) {
          if (size_of(p, entry->parts[j].factors[k])) continue;
          diag_help(diag(p->out->module->diags, DIAG_map_size_unknown,
                         side->terms[i].span, entry->parts[j].factors[k],
                         side->terms[i].pattern),
                    "give it in the map, as in 'dim %s = 64', or as %s=64 "
                    "after the checkpoint",
                    entry->parts[j].factors[k], entry->parts[j].factors[k]);
          return false;
        }
    }
  return true;
}

static bool check_dtypes(Maker *p, const Instance *instance, const MapTerm *to,
                         int first, int n) {
  const StoredTensor *a = instance->sources[first].tensor;
  for (int i = first; i < first + n; i++) {
    const StoredTensor *b = instance->sources[i].tensor;
    bool can_cast = dtype_is_float(b->dtype) && to->has_dtype &&
                    dtype_is_float((DnnDtype)to->dtype);
    if (to->has_dtype ? b->dtype == to->dtype || can_cast
                      : b->dtype == a->dtype)
      continue;
    misfit(p, "differs:", b->name);
    text_add(&p->out->misfits, " is");
    add_stored(&p->out->misfits, b);
    text_printf(&p->out->misfits, " and cannot become %s\n",
                to->has_dtype ? dtype_name(to->dtype) : dtype_label(a->dtype));
    return false;
  }
  return true;
}

static void add_made(Maker *p, const char *name, const StoredTensor *made,
                     Move *moves, int n) {
  Name key = name_intern(p->out->module->names, name);
  StoredTensor tensor = *made;
  tensor.name = key;
  if (map_has(p->made, key)) {
    misfit(p, "twice:", name);
    text_add(&p->out->misfits, "\n");
  }
  map_put(p->made, key, p);
  vec_push(p->arena, &p->out->tensors, tensor);
  vec_push(p->arena, &p->out->made, (Made){n, moves});
}

/* Sources [first, first + n) become the new tensor `to`. */
static void make_tensor(Maker *p, const Instance *instance, int index,
                        int first, int n) {
  const MapRule *rule = instance->rule;
  const MapSide *read = &rule->side[p->out->side];
  const MapTerm *to = &rule->side[!p->out->side].terms[index];
  if (!check_dtypes(p, instance, to, first, n)) return;
  bool reads_joined = rule->joined == p->out->side;
  StoredTensor made = {.dtype = instance->sources[first].tensor->dtype,
                       .rank = (uint8_t)to->rank};
  if (to->has_dtype) made.dtype = (DnnDtype)to->dtype;
  for (int d = 0; d < to->rank; d++) made.size[d] = entry_size(p, &to->dims[d]);
  Move *moves = ARENA_ARRAY(p->arena, Move, n);
  for (int i = 0; i < n; i++) {
    int piece = reads_joined ? index : i;
    Place joined = {NULL, rule->split_dim, piece}, single = {NULL, -1, 0};
    Place from = reads_joined ? joined : single;
    Place into = reads_joined ? single : joined;
    from.term = &read->terms[first + i];
    into.term = to;
    moves[i] = make_move(p, instance->sources[first + i], from, into);
  }
  add_made(p, name_of(p, instance, to), &made, moves, n);
}

/* Without dims: another name, the same bytes. */
static void make_copy(Maker *p, const Instance *instance) {
  const MapTerm *to = &instance->rule->side[!p->out->side].terms[0];
  const StoredTensor *from = instance->sources[0].tensor;
  Move *move = ARENA_NEW(p->arena, Move);
  *move = (Move){.from = from,
                 .file = instance->sources[0].file,
                 .rank = 1,
                 .size = {stored_elements(from)},
                 .from_stride = {1},
                 .to_stride = {1}};
  add_made(p, name_of(p, instance, to), from, move, 1);
}

static void apply(Maker *p, Instance *instance) {
  const MapRule *rule = instance->rule;
  if (!find_sources(p, instance)) return;
  if (!rule->side[0].terms[0].has_dims) {
    make_copy(p, instance);
    return;
  }
  if (!find_sizes(p, instance) || !all_known(p, instance)) return;
  int n_from = rule->side[p->out->side].n, n_to = rule->side[!p->out->side].n;
  for (int i = 0; i < n_to; i++)
    make_tensor(p, instance, i, 0, n_to > 1 ? 1 : n_from);
}

/* ---- all of them ---- */

static void apply_rule(Maker *p, const MapRule *rule) {
  const RuleValues *values = letters_of_rule(p->letters, rule);
  Instance instance = {.rule = rule, .letters = values};
  if (values->n == 0) {
    misfit(p, "missing:", rule->side[p->out->side].terms[0].pattern);
    text_add(&p->out->misfits, " (no name fits)\n");
  }
  for (; instance.at < values->n; instance.at++) apply(p, &instance);
}

static bool is_dropped(Maker *p, const char *name) {
  for (int i = 0; p->out->side == 0 && i < p->out->map->dropped.n; i++)
    if (pattern_drops(p->out->map->dropped.data[i].pattern, name)) return true;
  return false;
}

/* The optimizer state of dnnc's own checkpoints (whose names have a slash) is
 * not listed. */
static void list_extra(Maker *p) {
  for (int i = 0; i < p->out->from->n_places; i++) {
    const StoredTensor *tensor = p->out->from->places[i].tensor;
    if (map_has(p->used, tensor) || is_dropped(p, tensor->name)) continue;
    if (p->out->from->is_own && strchr(tensor->name, '/')) continue;
    misfit(p, "extra:", tensor->name);
    add_stored(&p->out->misfits, tensor);
    text_add(&p->out->misfits, "\n");
  }
}

void conversion_make(Conversion *conversion) {
  Arena *arena = conversion->module->arena;
  Maker maker = {.out = conversion,
                 .arena = arena,
                 .letters = letters_find(conversion),
                 .used = map_create(arena),
                 .made = map_create(arena)};
  conversion->misfits = text_create(arena);
  for (int i = 0; i < conversion->map->rules.n; i++) {
    const MapRule *rule = &conversion->map->rules.data[i];
    if (rule->either < 0 ||
        rule->alternative == letters_alternative(maker.letters, rule->either))
      apply_rule(&maker, rule);
  }
  list_extra(&maker);
}
