/*
 * servers.c -- compiles the training step of a plan with servers, and gives the
 * workers and each server a program.
 *
 *     rows before `kernels`   one graph, partitioned over the workers
 *     cut                     a graph for the workers, and one for each server
 *     rows from `kernels` on  each graph alone
 *
 * Workers have all other entry points.  In these a server does nothing, so its
 * program has each of them without instructions: all ranks come to them.
 */
#include "driver/internal.h"

#include <string.h>

static bool has_mistakes(const Compilation *c) {
  return diags_errors(c->module->diags) > 0;
}

static ServerCut cut_joint(const Compilation *c, const Graph *joint) {
  PassContext ctx = driver_pass_context(c, c->plan);
  ctx.is_training = true;
  ServerCut cut = servers_cut(&ctx, joint);
  arena_destroy(ctx.scratch);
  return cut;
}

bool driver_has_servers(const PassRun *run) {
  int cut_at = pass_phase(PASSES_kernels);
  return run->is_training && plan_servers(run->plan) &&
         (run->end == 0 || run->end > cut_at);
}

bool driver_run_servers(const Compilation *c, const PassRun *of, Graph *graph,
                        StageGraphs *out) {
  Arena *arena = c->module->arena;
  PassRun run = *of;
  *out = (StageGraphs){0};
  run.end = pass_phase(PASSES_kernels);
  PassResult joint = driver_passes(c, c->module, &run, graph);
  if (has_mistakes(c)) return false;
  ServerCut cut = cut_joint(c, joint.graph);
  if (!cut.worker) return false;
  run.begin = run.end;
  run.end = of->end;
  vec_push(arena, &out->graphs,
           driver_passes(c, c->module, &run, cut.worker).graph);
  for (int s = 0; s < cut.servers.n && !has_mistakes(c); s++) {
    PassRun own = run;
    own.plan = plan_create(c->module, run.plan->name);
    own.name = arena_printf(arena, "%s.server%d", run.name, s);
    vec_push(arena, &out->graphs,
             driver_passes(c, c->module, &own, cut.servers.data[s]).graph);
  }
  return !has_mistakes(c);
}

/* The servers are a mesh of their own, whose axis divides the rows of tables.
 */
static Mesh mesh_of(const Compilation *c, int n) {
  Name name = name_intern(c->module->names, "server");
  return (Mesh){.n_axes = 1, .axes = {{.name = name, .size = n}}};
}

static void add_class(Compilation *c, int first, int n, const char *title,
                      const Graph *train) {
  ProgramClass class = {.first_rank = first, .n_ranks = n};
  class.program.title = title;
  class.program.is_server = first > 0;
  class.program.entry_points[0] = driver_entry_point(c, ENTRY_train, train);
  class.program.n_entry_points = 1;
  vec_push(c->module->arena, &c->classes, class);
}

void driver_add_servers(Compilation *c, const StageGraphs *graphs) {
  const PlanServers *servers = plan_servers(c->plan);
  add_class(c, 0, servers->first_rank, "workers", graphs->graphs.data[0]);
  for (int s = 0; s < servers->n; s++) {
    Graph *graph = graphs->graphs.data[s + 1];
    graph->mesh = mesh_of(c, servers->n);
    add_class(c, servers->first_rank + s, 1,
              arena_printf(c->module->arena, "server %d", s), graph);
    EntryPoint *entry = &c->classes.data[s + 1].program.entry_points[0];
    entry->stages.data[0].first_rank = servers->first_rank;
  }
}

static const PersistentBuffer *find_stored(const RankProgram *program,
                                           Role role, const char *path) {
  const PersistentBuffers *all = &program->persistent;
  for (int i = 0; i < all->buffers.n; i++)
    if (all->buffers.data[i].role == role &&
        strcmp(all->buffers.data[i].path, path) == 0)
      return &all->buffers.data[i];
  return NULL;
}

/* Optimizer state, and averages that no entry point of the workers reads. */
static bool is_on_servers_alone(const Compilation *c,
                                const PersistentBuffer *buffer) {
  const RankProgram *workers = &c->classes.data[0].program;
  return buffer->role == ROLE_optimizer_state ||
         (buffer->role == ROLE_ema &&
          !find_stored(workers, ROLE_ema, buffer->path));
}

/* Returns the rows of the parameter of "adam.m/w", where servers divide it; 0:
 * they do not. */
static int64_t rows_of_table(const Compilation *c, const RankProgram *server,
                             const PersistentBuffer *state) {
  const char *slash = strchr(state->path, '/');
  for (; slash; slash = strchr(slash + 1, '/')) {
    const PersistentBuffer *own = find_stored(server, ROLE_param, slash + 1);
    const PersistentBuffer *of =
        find_stored(&c->classes.data[0].program, ROLE_param, slash + 1);
    if (own && of && own->bytes < of->bytes) return of->type->dims[0].size;
  }
  return 0;
}

void driver_place_tables(Compilation *c) {
  for (int k = 1; plan_servers(c->plan) && k < c->classes.n; k++) {
    RankProgram *server = &c->classes.data[k].program;
    for (int i = 0; i < server->persistent.buffers.n; i++) {
      PersistentBuffer *buffer = &server->persistent.buffers.data[i];
      if (!is_on_servers_alone(c, buffer)) continue;
      int64_t rows = rows_of_table(c, server, buffer);
      if (rows == 0) continue;
      Type *type = type_copy_logical(c->module->arena, buffer->type);
      type->dims[0].size = rows;
      type->dims[0].split = axis_list_append(0, 0);
      buffer->type = type;
    }
  }
}

void driver_add_idle_entries(Compilation *c) {
  for (int i = 1; plan_servers(c->plan) && i < c->classes.n; i++) {
    const RankProgram *workers = &c->classes.data[0].program;
    RankProgram *server = &c->classes.data[i].program;
    for (int k = 0; k < workers->n_entry_points; k++) {
      EntryPointId id = workers->entry_points[k].id;
      Graph *nothing = graph_create(c->module, c->model->name);
      if (id != ENTRY_train)
        server->entry_points[server->n_entry_points++] =
            driver_entry_point(c, id, nothing);
    }
  }
}
