/*
 * stage_graphs.h -- makes the graphs and edges of a chain of stages, as the cut
 * and the passes after it leave them, for the tests of programs.
 */
#ifndef TESTS_UNIT_STAGE_GRAPHS_H
#define TESTS_UNIT_STAGE_GRAPHS_H

#include "ir/program.h"
#include "tests/unit/values.h"

enum { MOST_STAGES = 8 };

/* Stage s multiplies what it receives by its parameter, and sends it on.  Then
 * gradients come back, a running norm goes up, and the last stage sends the
 * total to all others. */
typedef struct StageChain {
  int n, n_microbatches;
  bool has_skip;   /* stage 0 sends its value to the last stage, too */
  bool has_shared; /* the parameter of stage 0 is one of the last stage, too */
  bool
      is_sharded; /* the batch over the ranks of a stage, which add gradients */
  bool is_evaluation;
  /* A schedule that keeps versions: stages update alone, each on so many ranks
   * that run batches in turn. */
  bool has_versions;
  int n_replicas[MOST_STAGES];
  int n_more[MOST_STAGES]; /* products that the forward pass has besides */
  bool sums_replicas;      /* an update adds up the gradients of replicas */
  int first_rank[MOST_STAGES];
  Module *module;
  ProgramStage stages[MOST_STAGES];
  ProgramEdges edges;
} StageChain;

/* The text of the graph of a stage. */
typedef struct StageWriter {
  StageChain *chain;
  int stage, n_values, n_inputs;
  Text text, outputs;
} StageWriter;

/* The type of a value of samples. */
static const char *batch_type(const StageChain *chain) {
  return chain->is_sharded ? "f32[B:24@(data, time), C:4]"
                           : "f32[B:24@time, C:4]";
}

static int add_input(StageWriter *w, const char *type, const char *role,
                     const char *path) {
  text_printf(&w->text, "  %%%d = input {index = %d} : %s %s \"%s\"\n",
              w->n_values, w->n_inputs++, type, role, path);
  return w->n_values++;
}

static int PRINTF_LIKE(3, 4)
    add_node(StageWriter *w, const char *phase, const char *format, ...) {
  char text[200];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  text_printf(&w->text, "  %%%d = %s%s\n", w->n_values, text, phase);
  return w->n_values++;
}

static void add_output(StageWriter *w, const char *role, const char *path,
                       int value) {
  text_printf(&w->outputs, "  output %s \"%s\" %%%d\n", role, path, value);
}

static const char *numbered(StageWriter *w, const char *name, int number) {
  return arena_printf(w->chain->module->arena, "%s%d", name, number);
}

/* With a shared parameter its gradient arrives before the first norm. */
static int norm_level(const StageChain *chain, int stage) {
  return stage + (chain->has_shared ? 3 : 1);
}

static int write_forward(StageWriter *w, int x, int skip, int weight) {
  int s = w->stage, last = w->chain->n - 1;
  const char *type = batch_type(w->chain);
  if (skip >= 0) x = add_node(w, "", "add %%%d, %%%d : %s", x, skip, type);
  int y = add_node(w, "", "mul %%%d, %%%d : %s", x, weight, type);
  for (int i = 0; i < w->chain->n_more[s]; i++)
    y = add_node(w, "", "mul %%%d, %%%d : %s", y, weight, type);
  if (s < last) add_output(w, "send", numbered(w, "y", s), y);
  if (s == 0 && w->chain->has_skip) add_output(w, "send", "skip", y);
  return y;
}

/* Returns the gradient of the parameter, summed over micro-batches and ranks.
 */
static int write_backward(StageWriter *w, int dy, int x, int weight) {
  const StageChain *chain = w->chain;
  const char *type = batch_type(chain);
  int dx = add_node(w, " @dgrad", "mul %%%d, %%%d : %s", dy, weight, type);
  int dw = add_node(w, " @wgrad", "mul %%%d, %%%d : %s", dy, x, type);
  if (w->stage > 0) add_output(w, "send", numbered(w, "g", w->stage - 1), dx);
  if (chain->n_microbatches <= 1)
    return add_node(w, " @wgrad",
                    "sum %%%d {over = [B], per_microbatch = 1} : f32[C:4]", dw);
  int sum = add_node(w, " @wgrad", "sum %%%d {over = [B]} : f32[C:4; sum@%s]",
                     dw, chain->is_sharded ? "(data, time)" : "time");
  sum = add_node(w, " @wgrad",
                 "accumulate %%%d {axes = [time], reduce = sum} : f32[C:4%s]",
                 sum, chain->is_sharded ? "; sum@data" : "");
  if (!chain->is_sharded) return sum;
  return add_node(w, " @wgrad",
                  "all_reduce %%%d {axes = [data], reduce = sum} : f32[C:4]",
                  sum);
}

static void write_update_alone(StageWriter *w, int gradient, int weight) {
  if (w->chain->sums_replicas && w->chain->n_replicas[w->stage] > 1) {
    int term = add_node(w, " @wgrad",
                        "rename %%%d {from = [], to = []} : f32[C:4; sum@data]",
                        gradient);
    gradient = add_node(
        w, " @wgrad",
        "all_reduce %%%d {axes = [data], reduce = sum} : f32[C:4]", term);
  }
  int next =
      add_node(w, " @update", "sub %%%d, %%%d : f32[C:4]", weight, gradient);
  add_output(w, "param", numbered(w, "w", w->stage), next);
}

static void write_update(StageWriter *w, int gradient, int before, int total,
                         int share, int weight) {
  int s = w->stage, last = w->chain->n - 1;
  bool sends_share = w->chain->has_shared && s == last;
  if (sends_share) add_output(w, "send", "share", gradient);
  if (share >= 0)
    gradient =
        add_node(w, " @update", "add %%%d, %%%d : f32[C:4]", gradient, share);
  int norm = add_node(w, " @update", "sum %%%d {over = [C]} : f32[]", gradient);
  if (before >= 0)
    norm = add_node(w, " @update", "add %%%d, %%%d : f32[]", norm, before);
  if (s < last) add_output(w, "send", numbered(w, "n", s), norm);
  for (int i = 0; i < last && s == last; i++)
    add_output(w, "send", numbered(w, "total", i), norm);
  if (total < 0) total = norm;
  int scaled =
      add_node(w, " @update", "mul %%%d, %%%d : f32[C:4]", gradient, total);
  if (sends_share) return;
  int next =
      add_node(w, " @update", "sub %%%d, %%%d : f32[C:4]", weight, scaled);
  add_output(w, "param", numbered(w, "w", s), next);
}

static void write_stage(StageWriter *w) {
  const StageChain *chain = w->chain;
  int s = w->stage, last = chain->n - 1, skip = -1, dy = -1, before = -1,
      total = -1, share = -1, weight;
  bool trains = !chain->is_evaluation;
  bool receives_weight = chain->has_shared && s == last;
  int x = s == 0 ? add_input(w, batch_type(chain), "data", "d.x")
                 : add_input(w, batch_type(chain), "receive",
                             numbered(w, "y", s - 1));
  weight = receives_weight
               ? add_input(w, "f32[C:4]", "receive", "shared")
               : add_input(w, "f32[C:4]", "param", numbered(w, "w", s));
  if (chain->has_shared && s == 0) add_output(w, "send", "shared", weight);
  if (chain->has_skip && s == last)
    skip = add_input(w, batch_type(chain), "receive", "skip");
  if (trains && s < last)
    dy = add_input(w, batch_type(chain), "receive", numbered(w, "g", s));
  bool has_norm = trains && !chain->has_versions;
  if (has_norm && s > 0)
    before = add_input(w, "f32[]", "receive", numbered(w, "n", s - 1));
  if (has_norm && s < last)
    total = add_input(w, "f32[]", "receive", numbered(w, "total", s));
  if (trains && chain->has_shared && s == 0)
    share = add_input(w, "f32[C:4]", "receive", "share");
  int y = write_forward(w, x, skip, weight);
  if (!trains) {
    if (s == last) add_output(w, "result", "y", y);
    return;
  }
  int gradient = write_backward(w, dy >= 0 ? dy : y, x, weight);
  if (has_norm)
    write_update(w, gradient, before, total, share, weight);
  else
    write_update_alone(w, gradient, weight);
}

/* Without micro-batches there is no axis `time`; what runs for the one of them
 * has an attribute. */
static const char *without_time(Arena *arena, const char *text) {
  Text out = text_create(arena);
  for (const char *at = text; *at;) {
    if (strncmp(at, "@time", 5) == 0) {
      at += 5;
      continue;
    }
    if (strncmp(at, "add %", 5) == 0 || strncmp(at, "mul %", 5) == 0) {
      const char *end = strchr(at, ':'), *line = strchr(at, '\n');
      bool is_of_batch = strncmp(end, ": f32[B", 7) == 0;
      text_printf(&out, "%.*s%s", (int)(end - at), at,
                  is_of_batch ? "{per_microbatch = 1} " : "");
      text_printf(&out, "%.*s", (int)strcspn(end, "@\n"), end);
      at = end + strcspn(end, "@\n");
      (void)line;
      continue;
    }
    text_printf(&out, "%c", *at++);
  }
  return text_string(&out);
}

static void make_stage_graph(StageChain *chain, int stage) {
  Arena *arena = chain->module->arena;
  StageWriter w = {.chain = chain,
                   .stage = stage,
                   .text = text_create(arena),
                   .outputs = text_create(arena)};
  write_stage(&w);
  bool has_time = chain->n_microbatches > 1;
  const char *body = text_string(&w.text);
  if (!has_time) body = without_time(arena, body);
  int n_ranks = chain->has_versions ? chain->n_replicas[stage] : 2;
  const char *mesh = arena_printf(arena, "data = %d", n_ranks);
  if (has_time)
    mesh = arena_printf(arena, "%s, time = %d~", mesh, chain->n_microbatches);
  const char *text = arena_printf(arena, "graph g mesh(%s) {\n%s%s}\n", mesh,
                                  body, text_string(&w.outputs));
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){.path = "test", .text = text, .n = strlen(text)};
  Graph *graph = graph_parse(chain->module, source);
  cr_assert(graph, "%s", text);
  chain->stages[stage] = (ProgramStage){.graph = graph,
                                        .first_rank = chain->first_rank[stage],
                                        .n_ranks = mesh_ranks(&graph->mesh)};
}

static void add_edge(StageChain *chain, int from, int to, const char *path,
                     int level, bool is_after) {
  ProgramEdge edge = {.from = from,
                      .to = to,
                      .path = name_intern(chain->module->names, path),
                      .is_of_step = level > 0,
                      .is_after = is_after,
                      .level = level};
  vec_push(chain->module->arena, &chain->edges, edge);
}

static void add_edges(StageChain *chain) {
  int last = chain->n - 1;
  StageWriter w = {.chain = chain};
  bool trains = !chain->is_evaluation;
  bool has_norm = trains && !chain->has_versions;
  if (chain->has_shared) add_edge(chain, 0, last, "shared", 1, false);
  for (int s = 0; s < last; s++)
    add_edge(chain, s, s + 1, numbered(&w, "y", s), 0, false);
  if (chain->has_skip) add_edge(chain, 0, last, "skip", 0, false);
  for (int s = last - 1; s >= 0 && trains; s--)
    add_edge(chain, s + 1, s, numbered(&w, "g", s), 0, false);
  if (chain->has_shared && trains) add_edge(chain, last, 0, "share", 2, true);
  for (int s = 0; s < last && has_norm; s++)
    add_edge(chain, s, s + 1, numbered(&w, "n", s), norm_level(chain, s), true);
  for (int s = 0; s < last && has_norm; s++)
    add_edge(chain, last, s, numbered(&w, "total", s), norm_level(chain, last),
             true);
}

static inline void stage_chain_make(StageChain *chain) {
  chain->module = module_create();
  for (int s = 0; s < chain->n; s++) make_stage_graph(chain, s);
  add_edges(chain);
}

static inline ProgramParts stage_chain_parts(StageChain *chain,
                                             const char *schedule) {
  bool trains = schedule && !chain->is_evaluation;
  const PipelineSchedule *found =
      trains ? pipeline_schedule_find(schedule) : NULL;
  return (ProgramParts){.id = chain->is_evaluation ? ENTRY_eval : ENTRY_train,
                        .n_stages = chain->n,
                        .stages = chain->stages,
                        .edges = chain->edges,
                        .schedule = found,
                        .times = {1, 1, 1},
                        .splits_backward = found && found->splits_backward,
                        .diags = chain->module->diags};
}

/* Where n stages are: each on ranks of its own, on two groups in turn, on one
 * group, or on a V, whose rank r has the stages r and 2p - 1 - r. */
enum { FORM_apart, FORM_in_turn, FORM_together, FORM_vee, N_FORMS };

/* The group of a stage. */
static inline int stage_chain_group(int form, int n, int stage) {
  switch (form) {
  case FORM_apart: return stage;
  case FORM_in_turn: return stage % 2;
  case FORM_vee: return stage < n - stage ? stage : n - 1 - stage;
  default: return 0;
  }
}

static inline int stage_chain_groups(int form, int n) {
  int most = 0;
  for (int s = 0; s < n; s++)
    if (stage_chain_group(form, n, s) > most)
      most = stage_chain_group(form, n, s);
  return most + 1;
}

/* The schedule cannot have so many stages, groups or micro-batches. */
static inline bool stage_chain_refuses(const char *schedule, int n, int m,
                                       int form) {
  Module *module = module_create();
  const PipelineSchedule *found = pipeline_schedule_find(schedule);
  PipelineShape shape = {
      pipeline_has_chunks(found) ? stage_chain_groups(form, n) : n,
      n,
      m,
      {1, 1, 1}};
  bool refuses = pipeline_schedule_refuses(module->arena, found, &shape);
  modules_destroy();
  return refuses;
}

/* The entry points of all classes; their number is that of the ranks / 2. */
static inline EntryPoint *stage_chain_entries(StageChain *chain,
                                              const char *schedule) {
  stage_chain_make(chain);
  ProgramParts parts = stage_chain_parts(chain, schedule);
  EntryPoint *entries =
      ARENA_ARRAY(chain->module->arena, EntryPoint, MOST_STAGES);
  bool is_proved = program_timeline(chain->module->arena, &parts, entries);
  Text out = text_create(chain->module->arena);
  diags_print(chain->module->diags, &out);
  cr_assert(is_proved, "%s of %d stages and %d micro-batches: %s",
            schedule ? schedule : "forward", chain->n, chain->n_microbatches,
            text_string(&out));
  return entries;
}

#endif
