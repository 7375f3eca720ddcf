/*
 * price_loads.c -- compares the simulated step of a plan with what no order of
 * its launches can be faster than.
 *
 *     price_loads MODEL PLAN CLUSTER [ranks=N] [bucket=BYTES] [NAME=VALUE ...]
 *
 * PLAN - is data parallelism.  For the forward pass, the backward pass and the
 * update it prints lower bounds in percent of the step:
 *
 *     stream    what launches take, with what transfers take from them
 *     queue     what the transfers of a queue take, one after the other
 *     link      how long transfers keep a link busy
 *     chain     the longest chain of launches and transfers that wait for each
 *               other
 *     with ends  one of the first three, with the chains that lead to its jobs
 *               and away from them (Jackson's preemptive schedule)
 *     in turn   the longest chain, cut at its blocking transfers: what lies
 *               between two of them takes as long as its largest load
 *     then the queue  what a late bulk transfer waits for is on the stream
 *               before it, and what the bulk queue then has left behind it
 *
 * The gradient of the loss waits for all of the forward pass, and each update
 * for the norm, so the bounds of the three phases add up.  The distance is that
 * between the step and the largest sum.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"
#include "passes/topological.h"
#include "price/price_list.h"

enum { MOST_TRIED = 200, MOST_LATE = 8, N_PHASE_ENDS = 4 };

/* A node that takes time, on the stream or in a queue. */
typedef struct Job {
  Ps alone; /* one run, with nothing beside it */
  int64_t runs;
  int queue; /* -1 means the stream */
  SimTransfer transfer;
} Job;

typedef struct Resource {
  const char *name;
  int index; /* index of a queue or link; -1 means the stream */
  bool is_link;
} Resource;

typedef struct Loads {
  Arena *arena;
  const Graph *graph;
  const InstructionList *list;
  const CostModel *model;
  const ClusterSlice *slice;
  Ps step;
  int n;
  Job *jobs;
  int *user_begin, *users;
  VEC(Resource) resources;
  /* The interval at hand: of the nodes `first` to `last` those that wait for
   * the node before `first` and that `last` waits for. */
  int first, last;
  bool *is_inside;
  Ps *head, *tail; /* chains up to a node and behind it, one run each */
  int *before;     /* the node before it on the longest chain up to it */
} Loads;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

static _Noreturn void fail(const char *why, const char *what) {
  fprintf(stderr, "price_loads: %s '%s'\n", why, what);
  exit(1);
}

static const Node *node_at(const Loads *l, int id) {
  return l->graph->nodes.data[id];
}

static Ps larger(Ps a, Ps b) {
  return a > b ? a : b;
}

/* ---- jobs ---- */

static Ps busiest(const SimTransfer *transfer) {
  Ps most = 0;
  for (int i = 0; i < transfer->n_loads; i++)
    most = larger(most, transfer->loads[i].busy);
  return most;
}

/* Returns the time that it takes from the stream while its bytes move. */
static Ps taken_by(const Job *job) {
  return (Ps)((double)busiest(&job->transfer) * (double)job->transfer.takes /
              (double)SIM_ONE);
}

/* The launches of one iteration of a scan; its transfers are left out. */
static Ps body_time(const Loads *l, const Graph *graph) {
  Ps sum = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (!node_is_launched(graph, id) || op_has(node->op, OP_FLAG_asynchronous))
      continue;
    LaunchCost cost = {0};
    if (node->op == OP_scan)
      cost.time = scan_steps(node) * body_time(l, node->body);
    else
      cost = cost_launch(l->model, graph, id);
    sum += cost.launch + cost.time;
  }
  return sum;
}

static void find_job(Loads *l, int id) {
  const Node *node = node_at(l, id);
  Job *job = &l->jobs[id];
  *job = (Job){.runs = 1, .queue = -1};
  if (node_is_per_microbatch(l->graph, id))
    job->runs = mesh_microbatches(&l->graph->mesh);
  if (!node_is_launched(l->graph, id)) return;
  if (op_has(node->op, OP_FLAG_asynchronous)) {
    job->transfer = price_transfer(l->arena, l->model, l->slice, l->graph, id);
    job->transfer.latency -= job->transfer.sooner;
    job->alone = job->transfer.latency + busiest(&job->transfer);
  } else if (node->op == OP_scan) {
    job->alone = scan_steps(node) * body_time(l, node->body);
  } else {
    LaunchCost cost = cost_launch(l->model, l->graph, id);
    job->alone = cost.launch + cost.time;
  }
}

/* The queues of collectives outside of scans. */
static void find_queues(Loads *l) {
  int depth = 0;
  for (int i = 0; i < l->list->instructions.n; i++) {
    const Instruction *in = &l->list->instructions.data[i];
    bool is_loop = in->kind == INSTRUCTION_loop;
    if (in->kind == INSTRUCTION_start && depth == 0)
      l->jobs[in->node].queue = in->queue;
    if (is_loop && (in->node >= 0 || depth > 0)) depth++;
    if (in->kind == INSTRUCTION_end && depth > 0) depth--;
  }
}

static void find_users(Loads *l) {
  int *begin = l->user_begin = ARENA_ARRAY(l->arena, int, l->n + 2);
  for (int id = 0; id < l->n; id++)
    for (int i = 0; i < node_at(l, id)->n_inputs; i++)
      begin[node_at(l, id)->inputs[i].node + 2]++;
  for (int id = 0; id < l->n; id++) begin[id + 2] += begin[id + 1];
  l->users = ARENA_ARRAY(l->arena, int, begin[l->n + 1] + 1);
  for (int id = 0; id < l->n; id++)
    for (int i = 0; i < node_at(l, id)->n_inputs; i++)
      l->users[begin[node_at(l, id)->inputs[i].node + 1]++] = id;
}

/* ---- what waits for what ---- */

/* Marks the nodes that wait for `from`. */
static void mark_after(const Loads *l, int from, int last, bool *mark) {
  for (int id = from + 1; id <= last; id++) {
    mark[id] = from < 0;
    for (int i = 0; i < node_at(l, id)->n_inputs && from >= 0; i++) {
      int input = node_at(l, id)->inputs[i].node;
      mark[id] |= input == from || (input > from && mark[input]);
    }
  }
}

/* Marks `to` and the nodes that it waits for. */
static void mark_before(const Loads *l, int to, int first, bool *mark) {
  for (int id = first; id < to; id++) mark[id] = false;
  mark[to] = true;
  for (int id = to; id >= first; id--)
    for (int i = 0; i < node_at(l, id)->n_inputs && mark[id]; i++)
      if (node_at(l, id)->inputs[i].node >= first)
        mark[node_at(l, id)->inputs[i].node] = true;
}

/* ---- loads of an interval ---- */

/* From node `from` (-1: the begin) to node `to` (n: the end). */
static void enter_interval(Loads *l, int from, int to) {
  l->first = from + 1;
  l->last = to < l->n ? to : l->n - 1;
  bool *before = l->is_inside;
  for (int id = l->first; id <= l->last; id++) before[id] = true;
  if (to < l->n) mark_before(l, to, l->first, before);
  bool *after = ARENA_ARRAY(l->arena, bool, l->n);
  mark_after(l, from, l->last, after);
  for (int id = l->first; id <= l->last; id++) l->is_inside[id] &= after[id];
}

static bool is_inside(const Loads *l, int id) {
  return id >= l->first && id <= l->last && l->is_inside[id];
}

static void find_heads(Loads *l) {
  for (int id = l->first; id <= l->last; id++) {
    l->head[id] = 0;
    l->before[id] = -1;
    for (int i = 0; i < node_at(l, id)->n_inputs; i++) {
      int from = node_at(l, id)->inputs[i].node;
      if (!is_inside(l, from)) continue;
      Ps other = l->head[from] + l->jobs[from].alone;
      if (l->before[id] >= 0 && other <= l->head[id]) continue;
      l->head[id] = other;
      l->before[id] = from;
    }
  }
}

static void find_tails(Loads *l) {
  for (int id = l->last; id >= l->first; id--) {
    l->tail[id] = 0;
    for (int u = l->user_begin[id]; u < l->user_begin[id + 1]; u++) {
      int to = l->users[u];
      if (is_inside(l, to))
        l->tail[id] = larger(l->tail[id], l->tail[to] + l->jobs[to].alone);
    }
  }
}

static Ps chain_of(const Loads *l) {
  Ps most = 0, *end = ARENA_ARRAY(l->arena, Ps, l->n);
  for (int id = l->first; id <= l->last; id++) {
    if (!l->is_inside[id]) continue;
    for (int i = 0; i < node_at(l, id)->n_inputs; i++)
      if (is_inside(l, node_at(l, id)->inputs[i].node))
        end[id] = larger(end[id], end[node_at(l, id)->inputs[i].node]);
    end[id] += l->jobs[id].alone * l->jobs[id].runs;
    most = larger(most, end[id]);
  }
  return most;
}

/* How long one run of the job has the resource to itself. */
static Ps time_on(const Job *job, const Resource *on) {
  if (!on->is_link) return job->queue == on->index ? job->alone : 0;
  Ps busy = 0;
  for (int i = 0; i < job->transfer.n_loads && job->queue >= 0; i++)
    if (job->transfer.loads[i].link == on->index)
      busy += job->transfer.loads[i].busy;
  return busy;
}

static Ps load_of(const Loads *l, const Resource *on) {
  Ps sum = 0;
  for (int id = l->first; id <= l->last; id++) {
    const Job *job = &l->jobs[id];
    if (!l->is_inside[id]) continue;
    sum += time_on(job, on) * job->runs;
    if (on->index < 0) sum += taken_by(job) * job->runs;
  }
  return sum;
}

typedef struct Ready {
  Ps head;
  int id;
} Ready;

static int compare_heads(const void *a, const void *b) {
  const Ready *x = a, *y = b;
  if (x->head != y->head) return x->head < y->head ? -1 : 1;
  return x->id - y->id;
}

/* Lists the jobs on a resource by their heads. */
static int list_jobs(const Loads *l, const Resource *on, Ready *jobs, Ps *left,
                     int64_t *key) {
  int n = 0;
  for (int id = l->first; id <= l->last; id++) {
    if (!l->is_inside[id]) continue;
    const Job *job = &l->jobs[id];
    left[id] = time_on(job, on) * job->runs;
    key[id] = -l->tail[id];
    if (left[id] == 0) continue;
    Ps latency = on->is_link ? job->transfer.latency : 0;
    jobs[n++] = (Ready){l->head[id] + latency, id};
  }
  if (n > 0) qsort(jobs, (size_t)n, sizeof *jobs, compare_heads);
  return n;
}

/* Runs the ready job with the longest tail until another one is ready: no order
 * ends sooner. */
static Ps load_with_ends(const Loads *l, const Resource *on) {
  Ready *jobs = ARENA_ARRAY(l->arena, Ready, l->n);
  int64_t *key = ARENA_ARRAY(l->arena, int64_t, l->n);
  Ps *left = ARENA_ARRAY(l->arena, Ps, l->n), now = 0, most = 0;
  int n = list_jobs(l, on, jobs, left, key), next = 0;
  ReadyHeap heap = ready_heap(l->arena, l->n, key);
  while (next < n || heap.n > 0) {
    if (heap.n == 0) now = larger(now, jobs[next].head);
    while (next < n && jobs[next].head <= now)
      ready_push(&heap, jobs[next++].id);
    int id = ready_pop(&heap);
    Ps until = next < n ? jobs[next].head : INT64_MAX;
    Ps run = left[id] < until - now ? left[id] : until - now;
    now += run;
    left[id] -= run;
    if (left[id] > 0)
      ready_push(&heap, id);
    else
      most = larger(most, now + l->tail[id]);
  }
  return most;
}

static Ps largest_load(const Loads *l) {
  Ps most = chain_of(l);
  for (int i = 0; i < l->resources.n; i++)
    most = larger(most, load_of(l, &l->resources.data[i]));
  return most;
}

/* ---- in turn ---- */

static bool is_blocking(const Loads *l, int id) {
  return l->jobs[id].queue >= 0 &&
         collective_queue(node_at(l, id)) == QUEUE_blocking;
}

/* The loads of the pieces into which blocking transfers cut the longest chain
 * to `end`, the transfers themselves among them. */
static Ps load_in_turn(Loads *l, int from, int to, int end) {
  VEC(int) cuts = {0};
  for (int id = end; id >= 0; id = l->before[id])
    if (is_blocking(l, id)) vec_push(l->arena, &cuts, id);
  Ps sum = 0;
  int last = from;
  for (int i = cuts.n - 1; i >= 0; i--) {
    enter_interval(l, last, cuts.data[i]);
    l->is_inside[cuts.data[i]] = false;
    sum += largest_load(l);
    sum += l->jobs[cuts.data[i]].alone * l->jobs[cuts.data[i]].runs;
    last = cuts.data[i];
  }
  enter_interval(l, last, to);
  return sum + largest_load(l);
}

static int end_of_chain(const Loads *l) {
  int end = -1;
  Ps most = 0;
  for (int id = l->first; id <= l->last; id++) {
    Ps here = is_inside(l, id) ? l->head[id] + l->jobs[id].alone : 0;
    if (here > most) most = here, end = id;
  }
  return end;
}

/* ---- then the queue ---- */

/* By node that is not in `before`: the first bulk transfer that waits for it;
 * -1 if there is none. */
static int *find_fed(const Loads *l, const bool *before) {
  int *fed = ARENA_ARRAY(l->arena, int, l->n);
  for (int id = l->last; id >= l->first; id--) {
    fed[id] = -1;
    if (!l->is_inside[id] || before[id]) continue;
    for (int u = l->user_begin[id]; u < l->user_begin[id + 1]; u++) {
      int user = l->users[u];
      if (!is_inside(l, user)) continue;
      int of = l->jobs[user].queue >= 0 ? user : fed[user];
      if (l->jobs[user].queue >= 0 && is_blocking(l, user)) of = -1;
      if (of >= 0 && (fed[id] < 0 || of < fed[id])) fed[id] = of;
    }
  }
  return fed;
}

/* When transfer `late` is ready, the stream has done what it waits for.  Each
 * other transfer of its queue is behind it, or was fed before. */
static Ps load_then_queue(const Loads *l, int late) {
  bool *before = ARENA_ARRAY(l->arena, bool, l->n);
  mark_before(l, late, l->first, before);
  const int *fed = find_fed(l, before);
  Ps *feeding = ARENA_ARRAY(l->arena, Ps, l->n);
  Ps sum = l->jobs[late].alone + l->tail[late];
  for (int id = l->first; id <= l->last; id++) {
    const Job *job = &l->jobs[id];
    if (!l->is_inside[id] || id == late) continue;
    if (job->queue < 0 && before[id]) sum += job->alone * job->runs;
    if (job->queue < 0 && fed[id] >= 0)
      feeding[fed[id]] += job->alone * job->runs;
    if (job->queue >= 0 && before[id]) sum += taken_by(job) * job->runs;
  }
  for (int id = l->first; id <= l->last; id++) {
    const Job *job = &l->jobs[id];
    if (!is_inside(l, id) || before[id] || job->queue != l->jobs[late].queue)
      continue;
    Ps behind = job->alone * job->runs;
    Ps ahead = feeding[id] + taken_by(job) * job->runs;
    sum += ahead < behind ? ahead : behind;
  }
  return sum;
}

static Ps most_then_queue(const Loads *l) {
  Ps most = 0;
  int n_tried = 0;
  for (int id = l->last; id >= l->first && n_tried < MOST_LATE; id--) {
    if (!l->is_inside[id] || l->jobs[id].queue < 0 || is_blocking(l, id) ||
        l->jobs[id].runs > 1)
      continue;
    most = larger(most, load_then_queue(l, id));
    n_tried++;
  }
  return most;
}

/* ---- ends of phases ---- */

static bool is_product_of_gradients(const Node *node) {
  return (node->phase == PHASE_input_gradient ||
          node->phase == PHASE_weight_gradient) &&
         op_is(node->op, OPCLASS_contraction);
}

static bool *find_gradient_products(const Loads *l) {
  bool *wanted = ARENA_ARRAY(l->arena, bool, l->n);
  for (int id = 0; id < l->n; id++)
    wanted[id] = is_product_of_gradients(node_at(l, id));
  return wanted;
}

/* The nodes whose results replace parameters. */
static bool *find_updates(const Loads *l) {
  bool *wanted = ARENA_ARRAY(l->arena, bool, l->n);
  for (int i = 0; i < l->graph->outputs.n; i++)
    if (l->graph->outputs.data[i].role == ROLE_param)
      wanted[l->graph->outputs.data[i].value.node] = true;
  return wanted;
}

static bool all_wait_for(const Loads *l, const bool *wanted, int id) {
  bool *after = ARENA_ARRAY(l->arena, bool, l->n);
  mark_after(l, id, l->n - 1, after);
  for (int other = 0; other < l->n; other++)
    if (wanted[other] && (other <= id || !after[other])) return false;
  return true;
}

/* Returns the node with the longest chain before it for which all of the wanted
 * nodes wait.  Returns -1 if there is none. */
static int find_separator(const Loads *l, const bool *wanted) {
  bool *may_be = ARENA_ARRAY(l->arena, bool, l->n);
  int first = 0;
  while (first < l->n && !wanted[first]) first++;
  if (first == l->n) return -1;
  mark_before(l, first, 0, may_be);
  for (int tries = 0; tries < MOST_TRIED; tries++) {
    int best = -1;
    for (int id = 0; id < first; id++)
      if (may_be[id] && (best < 0 || l->head[id] >= l->head[best])) best = id;
    if (best < 0 || all_wait_for(l, wanted, best)) return best;
    may_be[best] = false;
  }
  return -1;
}

/* ---- printing ---- */

static Ps print_load(const Loads *l, const char *name, const char *more,
                     Ps load) {
  if (load > 0)
    printf("    %6.2f %%  %s%s\n", 1e2 * (double)load / (double)l->step, name,
           more);
  return load;
}

/* Prints the loads of a phase and returns the largest. */
static Ps print_loads(Loads *l, int from, int to) {
  enter_interval(l, from, to);
  find_heads(l);
  find_tails(l);
  int end = end_of_chain(l);
  Ps most = print_load(l, "chain", "", chain_of(l));
  for (int i = 0; i < l->resources.n; i++) {
    const Resource *on = &l->resources.data[i];
    Ps load = print_load(l, on->name, "", load_of(l, on));
    Ps with_ends = load_with_ends(l, on);
    if (with_ends > load) print_load(l, on->name, " with ends", with_ends);
    most = larger(most, larger(load, with_ends));
  }
  most = larger(
      most, print_load(l, "stream, then the queue", "", most_then_queue(l)));
  return larger(most,
                print_load(l, "in turn", "", load_in_turn(l, from, to, end)));
}

static void print_all(Loads *l) {
  static const char *const names[] = {"begin", "loss", "norm", "end"};
  enter_interval(l, -1, l->n);
  find_heads(l);
  int ends[N_PHASE_ENDS] = {-1, find_separator(l, find_gradient_products(l)),
                            find_separator(l, find_updates(l)), l->n};
  Ps best[N_PHASE_ENDS] = {0};
  for (int to = 1; to < N_PHASE_ENDS; to++)
    for (int from = 0; from < to; from++) {
      if (ends[from] >= ends[to] || (from > 0 && ends[from] < 0)) continue;
      printf("  from the %s to the %s\n", names[from], names[to]);
      best[to] =
          larger(best[to], best[from] + print_loads(l, ends[from], ends[to]));
    }
  Ps largest = best[N_PHASE_ENDS - 1];
  printf("step %.3f ms, largest load %.3f ms, distance %.2f %%\n",
         1e-9 * (double)l->step, 1e-9 * (double)largest,
         1e2 - 1e2 * (double)largest / (double)l->step);
}

/* ---- compiling ---- */

static Module *module_of(Memory *memory) {
  Arena *arena = arena_create(memory);
  Module *module = ARENA_NEW(arena, Module);
  module->memory = memory;
  module->arena = arena;
  module->names = names_create(arena);
  module->diags = diags_create(arena);
  return module;
}

static void read_options(char **words, int n, CompileOptions *options,
                         Override *overrides) {
  *options = (CompileOptions){.path = words[0],
                              .plan = strcmp(words[1], "-") ? words[1] : NULL,
                              .cluster = words[2],
                              .overrides = overrides,
                              .level = 2};
  for (int i = 3; i < n; i++) {
    char *value = strchr(words[i], '=');
    if (!value) fail("no value in", words[i]);
    *value++ = '\0';
    if (strcmp(words[i], "ranks") == 0)
      options->ranks = atoll(value);
    else if (strcmp(words[i], "bucket") == 0)
      options->bucket_bytes = atoll(value);
    else
      overrides[options->n_overrides++] = (Override){words[i], value};
  }
}

static void list_resources(Loads *l, const Cluster *cluster) {
  Arena *arena = l->arena;
  vec_push(arena, &l->resources, (Resource){"stream", -1, false});
  for (int q = 0; q < l->list->queues.n; q++)
    vec_push(arena, &l->resources,
             (Resource){arena_printf(arena, "%s queue",
                                     queue_name(l->list->queues.data[q].kind)),
                        q, false});
  for (int i = 0; i < cost_links(cluster); i++)
    vec_push(arena, &l->resources,
             (Resource){arena_printf(arena, "link %d", i), i, true});
}

static void compare(Compilation *c) {
  Arena *arena = c->module->arena;
  const EntryPoint *entry = driver_training_step(c);
  if (!entry) fail("no training in", c->options->path);
  ClusterSlice slice = cluster_slice(arena, c->cluster, 0, c->ranks);
  CostModel model = {0};
  if (!driver_cost_model(c, &slice, &model))
    fail("no cost model for", c->options->cluster);
  const InstructionList *list = entry_point_stage(entry)->instructions;
  int n = list->graph->nodes.n;
  Loads l = {.arena = arena,
             .graph = list->graph,
             .list = list,
             .model = &model,
             .slice = &slice,
             .step =
                 price_program(arena, entry, &model, &slice, NULL, NULL).step,
             .n = n,
             .jobs = ARENA_ARRAY(arena, Job, n),
             .is_inside = ARENA_ARRAY(arena, bool, n),
             .head = ARENA_ARRAY(arena, Ps, n),
             .tail = ARENA_ARRAY(arena, Ps, n),
             .before = ARENA_ARRAY(arena, int, n)};
  for (int id = 0; id < n; id++) find_job(&l, id);
  find_queues(&l);
  find_users(&l);
  list_resources(&l, c->cluster);
  print_all(&l);
}

int main(int argc, char **argv) {
  if (argc < 4) fail("too few words after", argv[0]);
  Memory *memory = memory_create(no_memory, NULL);
  Module *module = module_of(memory);
  CompileOptions options;
  Compilation c;
  read_options(argv + 1, argc - 1, &options,
               ARENA_ARRAY(module->arena, Override, argc));
  if (driver_load(module, &options, &c) != COMPILE_done ||
      driver_compile(&c, STATION_ordered) != COMPILE_done)
    fail("cannot compile", argv[1]);
  if (cluster_slice(module->arena, c.cluster, 0, c.ranks).n_groups > 1)
    fail("several groups of devices in", argv[3]);
  compare(&c);
  memory_destroy(memory);
  return 0;
}
