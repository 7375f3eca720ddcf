/*
 * buffers.c -- one arena per rank: the persistent buffers of all entry points
 * first, then the transient bytes, which the entry points use in turn.
 */
#include "driver/internal.h"

static BufferAssignment *assign(const Compilation *c, const Plan *plan,
                                const Graph *graph,
                                const PersistentBuffers *persistent) {
  PassContext ctx = driver_pass_context(c, plan);
  BufferAssignment *assignment = buffer_assign(&ctx, graph, persistent);
  arena_destroy(ctx.scratch);
  return assignment;
}

/* Decode caches come last: see PersistentBuffers.  A bundle that reads a
 * checkpoint has all buffers that training has, used or not. */
static void add_persistent(Compilation *c) {
  Arena *arena = c->module->arena;
  const Target *target = &c->target.backend->target;
  bool reads_checkpoint = c->options->purpose != PURPOSE_train;
  for (int i = 0; i < c->n_entry_points; i++)
    persistent_buffers_add(&c->persistent, arena, c->entry_points[i].graph,
                           target);
  if (reads_checkpoint && c->model->train)
    persistent_buffers_add(&c->persistent, arena, c->model->train, target);
  for (int i = 0; i < c->n_entry_points; i++)
    persistent_buffers_add_caches(&c->persistent, arena,
                                  c->entry_points[i].graph, target);
}

void driver_assign_buffers(Compilation *c) {
  add_persistent(c);
  for (int i = 0; i < c->n_entry_points; i++)
    c->entry_points[i].assignment =
        assign(c, c->plan, c->entry_points[i].graph, &c->persistent);
  if (c->plain.graph)
    c->plain.assignment = assign(c, c->plan, c->plain.graph, &c->persistent);
}

const BufferAssignment *
driver_assign_alone(const Compilation *c, EntryPointId id, const Graph *graph) {
  PersistentBuffers persistent = {0};
  bool is_sharded = entry_point_info(id)->is_sharded;
  persistent_buffers_add(&persistent, c->module->arena, graph,
                         &c->target.backend->target);
  return assign(c, is_sharded ? c->plan : NULL, graph, &persistent);
}

const EntryPoint *driver_training_step(const Compilation *c) {
  for (int i = 0; i < c->n_entry_points; i++)
    if (c->entry_points[i].id == ENTRY_train) return &c->entry_points[i];
  return NULL;
}

/* Prediction has an arena of its own, so it counts only where it is alone. */
const EntryPoint *driver_largest(const Compilation *c) {
  const EntryPoint *largest = NULL;
  for (int i = 0; i < c->n_entry_points; i++) {
    const EntryPoint *entry = &c->entry_points[i];
    if (c->n_entry_points > 1 && entry->id == ENTRY_predict) continue;
    if (!largest ||
        entry->assignment->arena_bytes > largest->assignment->arena_bytes)
      largest = entry;
  }
  return largest;
}

int64_t driver_arena_bytes(const Compilation *c) {
  const EntryPoint *largest = driver_largest(c);
  return largest ? largest->assignment->arena_bytes : 0;
}

bool driver_fits_memory(const Compilation *c) {
  const Plan *plan = c->plan;
  const EntryPoint *largest = driver_largest(c);
  if (!plan || !plan->memory_bytes || !largest ||
      largest->assignment->arena_bytes <= plan->memory_bytes)
    return true;
  Arena *arena = c->module->arena;
  double most = (double)largest->assignment->arena_bytes;
  Diag *d = diag(c->module->diags, DIAG_memory_pin, plan->memory_span,
                 text_quantity(arena, most, "B"));
  const char *whole = driver_whole_batch(c, largest);
  if (largest->id != ENTRY_train)
    diag_note(d, SPAN_NONE, "the entry point '%s' needs it%s%s", largest->name,
              whole ? "; all of its batch at once for " : "",
              whole ? whole : "");
  return false;
}
