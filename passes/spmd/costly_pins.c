/*
 * costly_pins.c -- warns of a pin of values where another placement, which
 * takes no more memory, lets a rank send less.
 *
 *     plan: shard F over tensor, shard h: B over data
 *     h = relu(dot(x, w, C))            [B@data, F@tensor]
 *     constraint h {to = [B], ...}      gathers F, which its reader contracts
 *     help: 'shard h: B over data, F over tensor' sends less
 *
 * Candidates are the pins whose constraints do more than reduce a partial sum.
 * Without such a pin its values have other placements, partial sums reduced.
 * If none of these is larger on a rank than the pinned one, they are tried as
 * pins.  A pin that buys memory with messages, as one of a sharded sequence
 * does, gets no warning.
 */
#include "passes/spmd/partition_trials.h"

/* Each is partitioned six times. */
enum { MOST_CANDIDATES = 32 };

typedef VEC(const ConstraintNote *) ConstraintNotes;

typedef struct CostlyPin {
  Span pin;
  const ConstraintNotes *notes; /* all of it */
  const ConstraintNote *note;   /* of the value that the message names */
  int n_others;                 /* further values of the pin */
  int64_t bytes, bytes_instead;
  const Type *instead; /* placement of the value */
} CostlyPin;

/* ---- candidates ---- */

/* The constraint does nothing, or reduces a partial sum and scatters it over
 * the axes of the sum. */
static bool only_reduces(const ConstraintNote *note) {
  const Type *have = note->have, *want = note->want;
  AxisSet reduced = have->partial & (AxisSet)~want->partial;
  for (int d = 0; d < have->rank; d++) {
    AxisList more;
    if (!axis_list_continues(want->dims[d].split, have->dims[d].split, &more) ||
        axis_list_set(more) & ~reduced)
      return false;
  }
  return !(want->partial & ~have->partial);
}

static bool is_of_forward_pass(const ConstraintNote *note) {
  return note->node->phase == PHASE_forward;
}

/* Returns whether a message should name this value rather than the other one.
 */
static bool is_better_example(const ConstraintNote *note,
                              const ConstraintNote *other) {
  return is_of_forward_pass(note) &&
         (!other || (only_reduces(other) && !only_reduces(note)));
}

/* The notes of each pin, by the text at its beginning. */
static Map *notes_by_pin(const PassContext *ctx, const Map *notes) {
  Map *pins = map_create(ctx->scratch);
  for (int i = 0; i < map_size(notes); i++) {
    const ConstraintNote *note = map_value_at(notes, i);
    Span span = note->node->span;
    if (!span.source) continue;
    const char *text = span.source->text + span.begin;
    ConstraintNotes *same = map_get(pins, text);
    if (!same) {
      same = ARENA_NEW(ctx->scratch, ConstraintNotes);
      map_put(pins, text, same);
    }
    vec_push(ctx->scratch, same, note);
  }
  return pins;
}

/* Collects what the notes say of one pin; false: its constraints are cheap, or
 * of a value without a path. */
static bool find_candidate(const ConstraintNotes *notes, CostlyPin *out) {
  const Node *first = notes->data[0]->node;
  bool moves = false;
  *out = (CostlyPin){.pin = first->span, .notes = notes, .n_others = -1};
  for (int i = 0; i < notes->n; i++) {
    const ConstraintNote *note = notes->data[i];
    moves |= !only_reduces(note);
    out->n_others += is_of_forward_pass(note);
    if (is_better_example(note, out->note)) out->note = note;
  }
  return moves && out->note && first->path && *first->path;
}

/* ---- trials ---- */

/* The placements of the values without the pin: path -> Type; NULL: one of them
 * is larger on a rank. */
static Map *find_placements(const PassContext *ctx, const Mesh *mesh,
                            const ConstraintNotes *notes, const Map *without) {
  Map *instead = map_create(ctx->scratch);
  for (int i = 0; i < notes->n; i++) {
    const ConstraintNote *note = notes->data[i];
    if (!is_of_forward_pass(note)) continue;
    const ConstraintNote *other = without ? map_get(without, note->node) : NULL;
    if (!other || type_local_elements(other->want, mesh) >
                      type_local_elements(note->want, mesh))
      return NULL;
    map_put(instead, note->node->path, (void *)other->want);
  }
  return instead;
}

/* A trial that differs from the plan in this pin saves bytes, at least half a
 * percent of all. */
static bool saves_bytes(const PassContext *ctx, const Graph *graph,
                        const CostlyPin *pin, PartitionTrial *trial,
                        int64_t *out_bytes) {
  PlacementCost cost;
  trial->left_out = pin->pin;
  choose_completion(ctx, graph, trial);
  if (!try_placement(ctx, graph, trial, true, &cost)) return false;
  *out_bytes = cost.bytes;
  return pin->bytes - cost.bytes > pin->bytes / 200;
}

/* Returns whether another placement of the pin's values saves bytes. */
static bool is_costly(const PassContext *ctx, const Graph *graph,
                      const Mesh *mesh, CostlyPin *pin) {
  PartitionTrial without = {0}, other = {0};
  if (!saves_bytes(ctx, graph, pin, &without, &pin->bytes_instead))
    return false;
  Map *instead = find_placements(ctx, mesh, pin->notes, without.notes);
  other.instead = instead;
  if (!instead || !saves_bytes(ctx, graph, pin, &other, &pin->bytes_instead))
    return false;
  pin->instead = map_get(instead, pin->note->node->path);
  return true;
}

/* ---- messages ---- */

static void add_pin_dim(Text *text, const Mesh *mesh, const Dim *dim) {
  AxisList split = axis_list_without(dim->split, mesh_sequential(mesh));
  int n = axis_list_length(split);
  if (n == 0) return;
  text_printf(text, "%s %s over %s", text->n ? "," : ":", dim->name,
              n > 1 ? "(" : "");
  for (int i = 0; i < n; i++)
    text_printf(text, "%s%s", i ? ", " : "",
                mesh->axes[axis_list_at(split, i)].name);
  if (n > 1) text_add(text, ")");
}

/* "shard h: B over data, F over (node, tensor)"; micro-batches have no pin.
 * Dims that the line names come in its order. */
static const char *pin_text(PassContext *ctx, const Mesh *mesh, Name path,
                            const Type *type) {
  Text text = text_create(ctx->scratch);
  const PlanPin *line = plan_find_placement(ctx->plan, path);
  for (int i = 0; line && i < line->n_shards; i++) {
    int d = type_find(type, line->shards[i].dim);
    if (d >= 0) add_pin_dim(&text, mesh, &type->dims[d]);
  }
  for (int d = 0; d < type->rank; d++)
    if (!line || !plan_placed_dim(line, type->dims[d].name))
      add_pin_dim(&text, mesh, &type->dims[d]);
  return arena_printf(ctx->scratch, "%s %s%s", text.n ? "shard" : "replicate",
                      path, text_string(&text));
}

static void report_costly_pin(PassContext *ctx, const Graph *graph,
                              const Mesh *mesh, const CostlyPin *pin) {
  const Node *node = pin->note->node;
  Diag *d =
      diag(ctx->module->diags, DIAG_costly_pin, pin->pin, node->path,
           (long long)(pin->bytes - pin->bytes_instead), (long long)pin->bytes);
  diag_note(d, graph_node(graph, node->inputs[0])->span,
            "'%s' is computed here", node->path);
  const char *text = pin_text(ctx, mesh, node->path, pin->instead);
  if (pin->n_others > 0)
    diag_help(d, "'%s', and so for %d more of its values, saves them", text,
              pin->n_others);
  else
    diag_help(d, "'%s' saves them", text);
}

void warn_of_costly_pins(PassContext *ctx, const Graph *graph,
                         const Graph *placed, const PartitionTrial *trial) {
  if (!trial->notes) return;
  const Map *pins = notes_by_pin(ctx, trial->notes);
  int n_candidates = 0;
  int64_t bytes = -1;
  for (int i = 0; i < map_size(pins) && n_candidates < MOST_CANDIDATES; i++) {
    CostlyPin pin;
    if (!find_candidate(map_value_at(pins, i), &pin)) continue;
    n_candidates++;
    if (bytes < 0) bytes = placement_cost(ctx, placed, true).bytes;
    pin.bytes = bytes;
    if (is_costly(ctx, graph, &placed->mesh, &pin))
      report_costly_pin(ctx, graph, &placed->mesh, &pin);
  }
}
