/*
 * timeline.c -- makes what a drawing of a step shows: bars on lanes, and the
 * memory of a rank over time.
 *
 *     launches   .  .. . ..   . ..... .        too short to be drawn
 *     bars       |===========||======|         several of them, by part
 *
 * A drawing has TIMELINE_COLUMNS columns.  A span that is at least a column
 * wide is a bar; shorter neighbours are joined until they are.  So the size of
 * a drawing does not grow with the program; one block of the most costly repeat
 * is drawn once more by itself, where each of its launches can be seen.
 */
#include "tools/show/inspect.h"

#include <stdlib.h>
#include <string.h>

/* ---- bars ---- */

typedef struct BarSpan {
  Ps begin, end, taken;
  CostTerm part;
  const PricedNode *at;
} BarSpan;

typedef struct BarMaker {
  Arena *arena;
  TimelineLane *lane;
  Ps column;
  Ps phases[PHASE_update + 1]; /* of the last bar */
} BarMaker;

static void choose_phase(BarMaker *m, TimelineBar *bar, Phase phase, Ps time) {
  m->phases[phase] += time;
  if (m->phases[phase] > m->phases[bar->phase]) bar->phase = phase;
}

static void add_bar(BarMaker *m, const BarSpan *span) {
  TimelineLane *lane = m->lane;
  TimelineBar *last =
      lane->bars.n > 0 ? &lane->bars.data[lane->bars.n - 1] : NULL;
  const char *path = priced_node_path(span->at);
  Ps length = span->end - span->begin;
  /* Two that follow each other closely, and are both short. */
  bool is_joined = last && last->end - last->begin < m->column &&
                   length < m->column && span->begin - last->end < m->column;
  if (!is_joined) {
    TimelineBar bar = {.begin = span->begin,
                       .phase = priced_node_phase(span->at),
                       .first = path};
    vec_push(m->arena, &lane->bars, bar);
    last = &lane->bars.data[lane->bars.n - 1];
    memset(m->phases, 0, sizeof m->phases);
  }
  last->n++;
  last->end = span->end;
  last->last = path;
  last->parts[span->part] += length - span->taken;
  last->parts[COST_interference] += span->taken;
  choose_phase(m, last, priced_node_phase(span->at), length);
}

/* The part of it that lies between two moments; false: nothing does. */
static bool clip(BarSpan *span, Ps begin, Ps end) {
  if (span->end <= begin || span->begin >= end) return false;
  if (span->begin < begin) span->begin = begin;
  if (span->end > end) span->end = end;
  Ps length = span->end - span->begin;
  if (span->taken > length) span->taken = length;
  return true;
}

static CostTerm transfer_part(const PricedNode *at) {
  int term = cost_term_find(priced_node_name(at));
  return term < 0 ? COST_all_reduce : (CostTerm)term;
}

static void fill_stream(BarMaker *m, const Priced *p, const Timeline *of) {
  const PricedClass *class = &p->classes[of->class];
  for (int i = 0; i < class->stream.n; i++) {
    const StreamSpan *span = &class->stream.data[i];
    BarSpan bar = {span->begin, span->end, span->taken, span->part,
                   &class->nodes[span->instruction]};
    if (clip(&bar, of->begin, of->end)) add_bar(m, &bar);
  }
}

static void fill_queue(BarMaker *m, const Priced *p, const Timeline *of,
                       int queue) {
  const PricedClass *class = &p->classes[of->class];
  for (int i = 0; i < class->queues.n; i++) {
    const QueueSpan *span = &class->queues.data[i];
    if (span->queue != queue) continue;
    const PricedNode *at = &class->nodes[span->instruction];
    BarSpan bar = {span->begin, span->end, 0, transfer_part(at), at};
    if (clip(&bar, of->begin, of->end)) add_bar(m, &bar);
  }
}

static Timeline make_timeline(Arena *arena, const Priced *p, int class,
                              Ps begin, Ps end, const char *title) {
  int n_queues = priced_queues(p, class);
  Timeline out = {.title = title,
                  .class = class,
                  .begin = begin,
                  .end = end,
                  .n_lanes = 1 + n_queues};
  out.lanes = ARENA_ARRAY(arena, TimelineLane, out.n_lanes);
  for (int i = 0; i < out.n_lanes; i++) {
    out.lanes[i].name =
        i ? priced_queue_name(arena, p, class, i - 1) : "stream";
    BarMaker m = {.arena = arena,
                  .lane = &out.lanes[i],
                  .column = (end - begin) / TIMELINE_COLUMNS};
    if (i == 0)
      fill_stream(&m, p, &out);
    else
      fill_queue(&m, p, &out, i - 1);
  }
  return out;
}

/* ---- one block of a repeat ---- */

typedef struct Repeat {
  Name name; /* "block" */
  Ps time;
  int64_t last; /* the largest index */
} Repeat;

/* Each iteration reads what the one before has computed.  Calls of one layer at
 * several places have such paths, too. */
static bool follows_itself(Arena *arena, const Priced *p,
                           const Repeat *repeat) {
  Names *names = p->c->module->names;
  const Graph *graph = p->c->model->train;
  bool *reads = ARENA_ARRAY(arena, bool, repeat->last + 1);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    Name name;
    int64_t index, before;
    if (!path_iteration(names, graph_path(graph, id), &name, &index) ||
        name != repeat->name || index > repeat->last)
      continue;
    for (int i = 0; i < node->n_inputs; i++)
      if (path_iteration(names, graph_path(graph, node->inputs[i].node), &name,
                         &before) &&
          name == repeat->name && before == index - 1)
        reads[index] = true;
  }
  for (int64_t i = 1; i <= repeat->last; i++)
    if (!reads[i]) return false;
  return true;
}

static Repeat most_costly_repeat(Arena *arena, const Priced *p,
                                 const PricedClass *class) {
  VEC(Repeat) repeats = {0};
  Map *rows = map_create(arena);
  Repeat best = {0};
  for (int i = 0; i < class->stream.n; i++) {
    const StreamSpan *span = &class->stream.data[i];
    const char *path = priced_node_path(&class->nodes[span->instruction]);
    Name name;
    int64_t index;
    if (!path_iteration(p->c->module->names, path, &name, &index)) continue;
    intptr_t at = (intptr_t)map_get(rows, name);
    if (!at) {
      vec_push(arena, &repeats, (Repeat){.name = name});
      at = repeats.n;
      map_put(rows, name, (void *)at);
    }
    Repeat *repeat = &repeats.data[at - 1];
    repeat->time += priced_length(span);
    if (index > repeat->last) repeat->last = index;
  }
  for (int i = 0; i < repeats.n; i++)
    if (repeats.data[i].last >= 2 && repeats.data[i].time > best.time &&
        follows_itself(arena, p, &repeats.data[i]))
      best = repeats.data[i];
  return best;
}

static bool is_in_block(const Priced *p, const Node *node, Name block,
                        int64_t wanted, bool is_forward) {
  bool fits = is_forward ? node->phase == PHASE_forward
                         : node->phase == PHASE_input_gradient ||
                               node->phase == PHASE_weight_gradient;
  Name name;
  int64_t index;
  return fits &&
         path_iteration(p->c->module->names, priced_path(node), &name,
                        &index) &&
         name == block && index == wanted;
}

/* A launch of the block in this pass. */
static bool is_work_of(const Priced *p, const PricedClass *class,
                       const StreamSpan *span, Name block, int64_t index,
                       bool is_forward) {
  const PricedNode *at = &class->nodes[span->instruction];
  return !span->is_wait && at->node && !at->is_clear &&
         is_in_block(p, at->node, block, index, is_forward);
}

/* Around its longest launch, up to gaps that are longer than all of its work:
 * its parameters may be gathered long before, and there may be more
 * micro-batches. */
static bool find_block(const Priced *p, const PricedClass *class, Name block,
                       int64_t index, bool is_forward, Ps *begin, Ps *end) {
  int longest = -1, n = class->stream.n;
  const StreamSpan *spans = class->stream.data;
  Ps work = 0;
  for (int i = 0; i < n; i++) {
    if (!is_work_of(p, class, &spans[i], block, index, is_forward)) continue;
    work += priced_length(&spans[i]);
    if (longest < 0 ||
        priced_length(&spans[i]) > priced_length(&spans[longest]))
      longest = i;
  }
  if (longest < 0) return false;
  if (p->c->plan && p->c->plan->microbatches > 1)
    work /= p->c->plan->microbatches;
  *begin = spans[longest].begin, *end = spans[longest].end;
  for (int i = longest; i >= 0 && *begin - spans[i].end <= work; i--)
    if (is_work_of(p, class, &spans[i], block, index, is_forward))
      *begin = spans[i].begin;
  for (int i = longest; i < n && spans[i].begin - *end <= work; i++)
    if (is_work_of(p, class, &spans[i], block, index, is_forward))
      *end = spans[i].end;
  return true;
}

/* Classes begin their steps one after the other. */
static Ps end_of_classes(const Priced *p) {
  Ps end = 0;
  for (int c = 0; c < p->price.n_classes; c++) {
    const PriceClass *class = &p->price.classes[c];
    if (class->begin + class->step > end) end = class->begin + class->step;
  }
  return end;
}

/* Where there are more classes, the one that is looked at is drawn in full. */
enum { MOST_TIMELINES = 4 };

Timeline *timelines_of(Arena *arena, const Priced *p, int *out_n) {
  VEC(Timeline) out = {0};
  for (int c = 0; c < p->n_classes; c++) {
    const PriceClass *class = &p->price.classes[c];
    if (p->n_classes > MOST_TIMELINES && c != p->shown) continue;
    const char *title =
        p->n_classes == 1
            ? arena_printf(arena, "A step of all %d ranks", p->c->ranks)
        : p->n_programs > 1
            ? arena_printf(arena, "A step of %d ranks from rank %lld on",
                           class->ranks, (long long)class->first_rank)
            : arena_printf(arena, "A step of the %d ranks of %s (%s)",
                           class->ranks, class->group->name,
                           class->group->device->name);
    vec_push(arena, &out,
             make_timeline(arena, p, c, 0, end_of_classes(p), title));
  }
  const PricedClass *slowest = priced_shown(p);
  Repeat repeat = {0};
  if (slowest) repeat = most_costly_repeat(arena, p, slowest);
  int64_t index = repeat.last / 2;
  for (int backward = 0; repeat.name && backward < 2; backward++) {
    Ps begin = 0, end = 0;
    if (!find_block(p, slowest, repeat.name, index, !backward, &begin, &end))
      continue;
    const char *title = arena_printf(
        arena, "%s[%lld], one of %lld: %s pass", repeat.name, (long long)index,
        (long long)repeat.last + 1, backward ? "backward" : "forward");
    vec_push(arena, &out, make_timeline(arena, p, p->shown, begin, end, title));
  }
  *out_n = out.n;
  return out.data;
}

/* ---- memory ---- */

typedef struct LiveBytes {
  Bytes bytes[N_PEAK_KINDS];
} LiveBytes;

/* By node: what is alive while it runs. */
static LiveBytes *live_bytes(Arena *arena, const Priced *p) {
  const Graph *graph = p->stage->graph;
  int n = graph->nodes.n, n_values;
  const MemoryValue *values =
      memory_values(arena, graph, p->stage->assignment,
                    &p->c->target.backend->target, &n_values);
  LiveBytes *live = ARENA_ARRAY(arena, LiveBytes, n + 2);
  for (int i = 0; i < n_values; i++) {
    live[values[i].first].bytes[values[i].kind] += values[i].bytes;
    live[values[i].last + 1].bytes[values[i].kind] -= values[i].bytes;
  }
  for (int id = 1; id < n; id++)
    for (int k = 0; k < N_PEAK_KINDS; k++)
      live[id].bytes[k] += live[id - 1].bytes[k];
  return live;
}

static Bytes sum_of(const Bytes *bytes) {
  Bytes sum = 0;
  for (int k = 0; k < N_PEAK_KINDS; k++) sum += bytes[k];
  return sum;
}

/* The node, from the one after the last launch up to this one, at which most is
 * alive: collectives stand between launches. */
static int fullest_node(const LiveBytes *live, int after, int node) {
  int best = node;
  for (int id = after + 1; id < node; id++)
    if (sum_of(live[id].bytes) > sum_of(live[best].bytes)) best = id;
  return best;
}

MemoryMoment *memory_over_time(Arena *arena, const Priced *p, int *out_n) {
  VEC(MemoryMoment) out = {0};
  *out_n = 0;
  if (p->n_classes == 0 || p->price.step == 0) return NULL;
  const LiveBytes *live = live_bytes(arena, p);
  const PricedClass *class = priced_shown(p);
  Ps begin = p->price.classes[p->shown].begin;
  Ps column = p->price.step / TIMELINE_COLUMNS + 1;
  int64_t at = -1; /* the column of the last moment */
  int last = p->stage->graph->nodes.n;
  for (int i = 0; i < class->stream.n; i++) {
    const StreamSpan *span = &class->stream.data[i];
    const PricedNode *of = &class->nodes[span->instruction];
    int node = of->outer;
    if (span->is_wait || node < 0 || of->stage != p->stage) continue;
    MemoryMoment moment = {.time = span->begin - begin};
    memcpy(moment.bytes, live[fullest_node(live, last, node)].bytes,
           sizeof moment.bytes);
    last = node;
    if (moment.time / column != at) {
      vec_push(arena, &out, moment);
      at = moment.time / column;
    } else if (sum_of(moment.bytes) > sum_of(out.data[out.n - 1].bytes)) {
      memcpy(out.data[out.n - 1].bytes, moment.bytes, sizeof moment.bytes);
    }
  }
  *out_n = out.n;
  return out.data;
}
