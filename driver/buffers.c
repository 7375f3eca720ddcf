/*
 * buffers.c -- one arena per rank: the persistent buffers of all entry points
 * first, then the transient bytes, which the entry points use in turn.
 */
#include "driver/internal.h"

#include <string.h>

static BufferAssignment *assign(const Compilation *c, const Plan *plan,
                                const ProgramStage *stage,
                                const PersistentBuffers *persistent) {
  PassContext ctx = driver_pass_context(c, plan);
  BufferAssignment *assignment = buffer_assign(&ctx, stage, persistent);
  arena_destroy(ctx.scratch);
  return assignment;
}

static void add_stages(PersistentBuffers *persistent, Arena *arena,
                       const EntryPoint *entry, const Target *target,
                       void (*add)(PersistentBuffers *, Arena *, const Graph *,
                                   const Target *)) {
  for (int s = 0; s < entry->stages.n; s++)
    add(persistent, arena, entry->stages.data[s].graph, target);
}

/* Slots of versions are those of training, which comes before other entry
 * points. */
static void add_versions(PersistentBuffers *persistent, Arena *arena,
                         const EntryPoint *entry, const Target *target) {
  for (int s = 0; s < entry->stages.n && entry->is_period; s++)
    persistent_buffers_add_versions(persistent, arena,
                                    entry->stages.data[s].graph,
                                    entry->stages.data[s].n_versions, target);
}

static bool has_stage(const RankProgram *program, int number) {
  const EntryPoint *entry = &program->entry_points[0];
  for (int s = 0; s < entry->stages.n; s++)
    if (entry->stages.data[s].number == number) return true;
  return false;
}

/* The training graph as far as its inputs belong to stages of the program, or
 * to none. */
static const Graph *own_training(const Compilation *c,
                                 const RankProgram *program) {
  Arena *arena = c->module->arena;
  const Graph *train = c->model->train;
  StageFault fault;
  if (!c->plan || c->plan->stages.n <= 1) return train;
  const uint16_t *stages =
      stage_labels(arena, train, c->plan->stage_of, &fault);
  ASSERT(stages);
  Graph *own = arena_copy(arena, train, sizeof *train);
  memset(&own->inputs, 0, sizeof own->inputs);
  for (int i = 0; i < train->inputs.n; i++) {
    int stage = stages[train->inputs.data[i].value.node];
    if (stage == 0 || has_stage(program, stage - 1))
      vec_push(arena, &own->inputs, train->inputs.data[i]);
  }
  return own;
}

/* Decode caches come last: see PersistentBuffers.  A bundle that reads a
 * checkpoint has all buffers that training has, used or not. */
static void add_persistent(Compilation *c, RankProgram *program) {
  Arena *arena = c->module->arena;
  const Target *target = &c->target.backend->target;
  bool reads_checkpoint = c->options->purpose != PURPOSE_train;
  PersistentBuffers *persistent = &program->persistent;
  for (int i = 0; i < program->n_entry_points; i++) {
    add_versions(persistent, arena, &program->entry_points[i], target);
    add_stages(persistent, arena, &program->entry_points[i], target,
               persistent_buffers_add);
  }
  if (reads_checkpoint && c->model->train)
    persistent_buffers_add(persistent, arena, own_training(c, program), target);
  for (int i = 0; i < program->n_entry_points; i++)
    add_stages(persistent, arena, &program->entry_points[i], target,
               persistent_buffers_add_caches);
}

void driver_assign_entry_point(const Compilation *c, EntryPoint *entry,
                               const PersistentBuffers *persistent) {
  bool has_stages = c->plan && c->plan->stages.n > 1;
  if (has_stages && entry->stages.n > 0) {
    PassContext ctx = driver_pass_context(c, c->plan);
    buffer_assign_stages(&ctx, entry, persistent);
    arena_destroy(ctx.scratch);
    return;
  }
  for (int s = 0; s < entry->stages.n; s++) {
    ProgramStage *stage = &entry->stages.data[s];
    stage->assignment = assign(c, c->plan, stage, persistent);
  }
}

static void assign_program(Compilation *c, RankProgram *program) {
  add_persistent(c, program);
  for (int i = 0; i < program->n_entry_points; i++)
    driver_assign_entry_point(c, &program->entry_points[i],
                              &program->persistent);
  driver_assign_entry_point(c, &program->plain, &program->persistent);
}

void driver_assign_buffers(Compilation *c) {
  for (int i = 0; i < c->classes.n; i++)
    assign_program(c, &c->classes.data[i].program);
  driver_place_tables(c);
}

const BufferAssignment *
driver_assign_alone(const Compilation *c, EntryPointId id, const Graph *graph) {
  PersistentBuffers persistent = {0};
  bool is_sharded = entry_point_info(id)->is_sharded;
  persistent_buffers_add(&persistent, c->module->arena, graph,
                         &c->target.backend->target);
  EntryPoint entry = driver_entry_point(c, id, graph);
  return assign(c, is_sharded ? c->plan : NULL, entry_point_stage(&entry),
                &persistent);
}

const EntryPoint *driver_training_step(const Compilation *c) {
  return rank_program_find(driver_only_program(c), ENTRY_train);
}

/* Prediction has an arena of its own, so it counts only where it is alone. */
const EntryPoint *driver_largest_of(const RankProgram *program) {
  const EntryPoint *largest = NULL;
  for (int i = 0; i < program->n_entry_points; i++) {
    const EntryPoint *entry = &program->entry_points[i];
    if (program->n_entry_points > 1 && entry->id == ENTRY_predict) continue;
    if (!largest ||
        entry_point_arena_bytes(entry) > entry_point_arena_bytes(largest))
      largest = entry;
  }
  return largest;
}

const EntryPoint *driver_largest(const Compilation *c) {
  const EntryPoint *largest = NULL;
  for (int i = 0; i < c->classes.n; i++) {
    const EntryPoint *of = driver_largest_of(&c->classes.data[i].program);
    if (of && (!largest ||
               entry_point_arena_bytes(of) > entry_point_arena_bytes(largest)))
      largest = of;
  }
  return largest;
}

int64_t driver_arena_bytes(const Compilation *c) {
  const EntryPoint *largest = driver_largest(c);
  return largest ? entry_point_arena_bytes(largest) : 0;
}

int64_t driver_host_bytes_of(const RankProgram *program) {
  int64_t most = program->persistent.host_bytes;
  for (int i = 0; i < program->n_entry_points; i++) {
    int64_t bytes = entry_point_host_bytes(&program->entry_points[i]);
    if (bytes > most) most = bytes;
  }
  return most;
}

bool driver_fits_memory(const Compilation *c) {
  const Plan *plan = c->plan;
  const EntryPoint *largest = driver_largest(c);
  if (!plan || !plan->memory_bytes || !largest ||
      entry_point_arena_bytes(largest) <= plan->memory_bytes)
    return true;
  Arena *arena = c->module->arena;
  double most = (double)entry_point_arena_bytes(largest);
  Diag *d = diag(c->module->diags, DIAG_memory_pin, plan->memory_span,
                 text_quantity(arena, most, "B"));
  const char *whole = driver_whole_batch(c, largest);
  if (largest->id != ENTRY_train)
    diag_note(d, SPAN_NONE, "the entry point '%s' needs it%s%s", largest->name,
              whole ? "; all of its batch at once for " : "",
              whole ? whole : "");
  return false;
}
