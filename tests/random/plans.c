/*
 * plans.c -- generates a random mesh and a random plan for a program.
 *
 *     mesh { a = 2; b = 3 }
 *     plan { microbatches = 2
 *            shard D4 over b
 *            shard p7: A over (a, b) }
 *
 * The lines of the plan are about the dims and paths of the program's graph
 * (plan_graph.c, plan_places.c).  Most lines can hold: an axis divides the dim
 * that it shards, or the plan is one in four that shard unevenly.  Lines about
 * attention and partial sums come first, and no other line takes their axes.
 * Where the program allows it, the batch is a multiple of what the mesh and the
 * micro-batches need.  A plan of several stages has a schedule and cuts, too.
 */
#include "tests/random/plans.h"

#include <string.h>

#include "tests/random/plan_maker.h"

static const char *const axis_names[MOST_PLAN_AXES] = {"a", "b", "c"};

void count_line(PlanMaker *m, PlanLine line) {
  if (m->lines) m->lines[line]++;
}

bool may_be_odd(PlanMaker *m) {
  return CHOOSE(m, 100) == 99;
}

/* ---- axes ---- */

static const char *take_axes(PlanMaker *m, int first, int n, PlanAxes *used,
                             int64_t *out_shards) {
  PlanAxes taken = 0;
  Text text = text_create(m->arena);
  *out_shards = 1;
  for (int i = first; i < first + n; i++) {
    taken |= 1u << i;
    *out_shards *= m->sizes[i];
    const char *before = i > first ? ", " : n > 1 ? "(" : "";
    text_printf(&text, "%s%s", before, axis_names[i]);
  }
  if (taken & (*used | m->reserved)) return NULL;
  if (n > 1) text_add(&text, ")");
  *used |= taken;
  return text_string(&text);
}

const char *pick_axes(PlanMaker *m, PlanAxes *used, int64_t *out_shards) {
  int first = CHOOSE(m, m->n_axes), n = 1 + CHOOSE(m, m->n_axes - first);
  if (CHOOSE(m, 4) < 3) n = 1;
  return take_axes(m, first, n, used, out_shards);
}

/* Shards of unequal size are over one axis. */
bool may_shard(PlanMaker *m, int64_t size, int64_t shards, const char *axes) {
  if (size == 0) return false;
  bool is_even = size % shards == 0;
  bool may_be_uneven = m->is_uneven && size > 1 && axes[0] != '(';
  return is_even || (may_be_uneven && CHOOSE(m, 2) == 0) || may_be_odd(m);
}

/* ---- settings ---- */

/* The size of the next axis, which the subject gives or is random; 0: the mesh
 * has no more. */
static int choose_axis(PlanMaker *m) {
  static const int sizes[] = {2, 3, 4, 2};
  const PlanSubject *subject = m->subject;
  int i = m->n_axes;
  if (subject->n_axes > 0)
    return i < subject->n_axes ? (int)subject->axes[i] : 0;
  int size = sizes[CHOOSE(m, ARRAY_LENGTH(sizes))];
  if (i > 0 && CHOOSE(m, 2)) return 0;
  return m->ranks * size > subject->most_ranks ? 0 : size;
}

/* By node: it follows from a parameter or state, as what has a stage does. */
static bool *find_trained(const PlanMaker *m) {
  const Graph *graph = m->graph;
  bool *is_trained = ARENA_ARRAY(m->arena, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    int index = (int)node_int(node, ATTR_index, 0);
    is_trained[id] =
        node->op == OP_input && graph->inputs.data[index].role == ROLE_param;
    for (int i = 0; i < node->n_inputs; i++)
      is_trained[id] |= is_trained[node->inputs[i].node];
  }
  return is_trained;
}

/* Paths of values after which a stage may end: the last stage has the nodes
 * behind the last one. */
static void find_cuts(PlanMaker *m) {
  const bool *is_trained = find_trained(m);
  const char *last = "";
  for (int id = 0; id + 1 < m->graph->nodes.n; id++) {
    const Node *node = m->graph->nodes.data[id];
    if (node->op == OP_input || !is_trained[id] || !node->path ||
        !*node->path || !strncmp(node->path, "loss", 4) ||
        !strcmp(node->path, last))
      continue;
    vec_push(m->arena, &m->cuts, node->path);
    last = node->path;
  }
  if (m->cuts.n > 0) m->cuts.n--;
}

/* Stages of one rank or two. */
static void make_staged_mesh(PlanMaker *m) {
  find_cuts(m);
  m->n_stages = 2 + CHOOSE(m, 3);
  if (m->n_stages > m->cuts.n + 1) m->n_stages = m->cuts.n + 1;
  m->n_axes = CHOOSE(m, 2);
  m->n_chunks = 1;
  if (m->n_stages > 1 && CHOOSE(m, 3) == 2)
    m->n_chunks = m->n_stages == 4 ? 2 + 2 * CHOOSE(m, 2) : m->n_stages;
  if (m->n_stages > 1)
    text_printf(m->out, " pipe = %d;", m->n_stages / m->n_chunks);
  if (m->n_axes) text_add(m->out, " a = 2");
  m->sizes[0] = 2;
  m->ranks = m->n_axes ? 2 : 1;
  text_add(m->out, " }\nplan {\n");
}

static void make_mesh(PlanMaker *m) {
  m->ranks = 1;
  text_add(m->out, "\nmesh {");
  if (m->subject->has_stages) {
    make_staged_mesh(m);
    return;
  }
  for (int i = 0; i < MOST_PLAN_AXES; i++) {
    int size = choose_axis(m);
    if (size == 0) break;
    text_printf(m->out, "%s %s = %d", i ? ";" : "", axis_names[i], size);
    m->ranks *= size;
    m->sizes[m->n_axes++] = size;
  }
  text_add(m->out, " }\nplan {\n");
}

static void make_microbatches(PlanMaker *m) {
  bool is_odd = m->joins_samples || m->needs_all_samples;
  if (m->subject->has_stages)
    m->microbatches = 1 + CHOOSE(m, 6);
  else
    m->microbatches = CHOOSE(m, 3) < 2 ? 1 : 2 + CHOOSE(m, 2);
  if (m->n_chunks == 2 && m->microbatches == 5) m->microbatches = 4;
  if (is_odd && m->microbatches > 1 && !may_be_odd(m)) m->microbatches = 1;
  if (m->subject->samples % m->microbatches != 0) m->microbatches = 2;
  if (m->microbatches == 1) return;
  text_printf(m->out, "  microbatches = %d\n", m->microbatches);
  count_line(m, LINE_microbatches);
}

static void make_settings(PlanMaker *m) {
  make_microbatches(m);
  if (CHOOSE(m, 4) == 3) {
    text_printf(m->out, "  bucket = %dB\n", 100 << CHOOSE(m, 4));
    count_line(m, LINE_bucket);
  }
  int zero = CHOOSE(m, 5);
  PlanAxes used = 0;
  int64_t shards;
  if (zero >= 1 && zero <= 3) {
    m->zero = zero;
    count_line(m, (PlanLine)(LINE_zero1 + zero - 1));
    const char *axes = CHOOSE(m, 3) == 2 ? pick_axes(m, &used, &shards) : NULL;
    text_printf(m->out, "  zero = %d%s%s\n", zero, axes ? " over " : "",
                axes ? axes : "");
    if (axes) count_line(m, LINE_zero_over);
  }
  m->is_uneven = CHOOSE(m, 4) == 3;
  if (m->subject->computes_bf16 && CHOOSE(m, 2)) {
    text_add(m->out, "  reduce = bf16\n");
    count_line(m, LINE_reduce);
  }
}

/* Over the first axis, from a random one on, that divides the sequence and, for
 * ulysses, the heads. */
static void make_attention(PlanMaker *m) {
  static const char *const words[] = {"gather", "ring", "ulysses"};
  const PlanSubject *subject = m->subject;
  if (!subject->queries || CHOOSE(m, 3) == 0) return;
  int kind = CHOOSE(m, ARRAY_LENGTH(words)), first = CHOOSE(m, m->n_axes);
  PlanDim *queries = find_plan_dim(m, subject->queries);
  PlanDim *keys = find_plan_dim(m, subject->keys);
  PlanDim *heads = find_plan_dim(m, subject->heads);
  for (int i = 0; i < m->n_axes; i++) {
    int axis = (first + i) % m->n_axes, size = m->sizes[axis];
    if (queries->size % size != 0) continue;
    if (kind == 2 && heads->size % size != 0) continue;
    text_printf(m->out, "  attention = %s\n  shard %s over %s\n", words[kind],
                subject->queries, axis_names[axis]);
    count_line(m, (PlanLine)(LINE_gather + kind));
    m->reserved |= 1u << axis;
    queries->size = keys->size = 0;
    if (kind == 2) heads->size /= size; /* what other axes may share out */
    return;
  }
}

/* ---- the batch ---- */

static bool divides_batch(const PlanMaker *m, int64_t shards) {
  bool may_be_uneven = m->microbatches == 1 && m->is_uneven;
  return may_be_uneven || m->subject->samples % (shards * m->microbatches) == 0;
}

/* The batch over some axes; none where an operator needs all samples. */
static void make_batch_line(PlanMaker *m) {
  int64_t shards = 1;
  const char *axes = NULL;
  bool is_whole = m->needs_all_samples && !may_be_odd(m);
  bool may_be_uneven =
      m->is_uneven && m->microbatches == 1 && !m->needs_all_samples;
  m->is_batch_uneven = may_be_uneven && CHOOSE(m, 2) == 1;
  m->is_batch_open =
      !is_whole && CHOOSE(m, 3) == 2 && divides_batch(m, m->ranks);
  if (m->is_batch_open) return; /* it takes the axes that no line names */
  if (!is_whole && CHOOSE(m, 4)) {
    PlanAxes used = 0;
    axes = pick_axes(m, &used, &shards);
    if (axes && !divides_batch(m, shards)) axes = NULL;
    if (axes) m->batch_axes = used;
  }
  m->batch_text = axes ? axes : "none";
  text_printf(m->out, "  shard %s over %s\n", m->subject->batch, m->batch_text);
  count_line(m, LINE_batch);
  bool is_uneven = m->is_batch_uneven || m->subject->samples % shards != 0;
  if (axes && is_uneven) count_line(m, LINE_uneven);
}

/* So many that ranks and micro-batches divide them, or one more. */
static int64_t choose_samples(const PlanMaker *m) {
  int64_t shards = (int64_t)m->ranks * m->microbatches, n = shards;
  if (m->subject->samples) return m->subject->samples;
  while (n % 12 != 0) n += shards;
  return n + m->is_batch_uneven;
}

/* ---- stages ---- */

/* Lines in the order of the program; a random path for each. */
static void make_cuts(PlanMaker *m) {
  for (int s = 1, from = 0; s < m->n_stages; s++) {
    int left = m->n_stages - s;
    int at = from + CHOOSE(m, m->cuts.n - from - left + 1);
    text_printf(m->out, "  cut after %s\n", m->cuts.data[at]);
    from = at + 1;
  }
}

static const char *choose_schedule(PlanMaker *m) {
  static const char *const schedules[] = {"1f1b", "fthenb", "gpipe", "naive",
                                          "zbh1"};
  static const char *const of_chunks[] = {"interleaved", "bfs", "zb1p"};
  static const char *const on_vees[] = {"zbv", "vhalf", "vmin"};
  if (m->n_chunks <= 1) return schedules[CHOOSE(m, ARRAY_LENGTH(schedules))];
  int n = ARRAY_LENGTH(of_chunks);
  int choice = CHOOSE(m, m->n_chunks == 2 ? n + ARRAY_LENGTH(on_vees) : n);
  if (choice >= n) return on_vees[choice - n];
  return arena_printf(m->arena, "%s(v = %d)", of_chunks[choice], m->n_chunks);
}

static void make_stage_lines(PlanMaker *m) {
  text_printf(m->out, "  schedule = %s\n", choose_schedule(m));
  make_cuts(m);
}

/* ---- the plan ---- */

static void make_lines(PlanMaker *m) {
  typedef void MakeLine(PlanMaker *);
  static MakeLine *const makes[] = {
      make_name_line,     make_name_line,      make_name_line,
      make_name_line,     make_name_line,      make_name_line,
      make_name_line,     make_parameter_line, make_parameter_line,
      make_value_line,    make_value_line,     make_value_line,
      make_value_line,    make_operator_line,  make_operator_line,
      make_operator_line, make_space_line,     make_space_line,
      make_space_line,    make_gradient_line,  make_gradient_line,
      make_state_line,    make_state_line,     make_replicate_line,
      make_keep_line,     make_remat_line,     make_remat_line};
  enum { NONE = 3 }; /* so that the plainest answer writes no line */
  if (m->subject->has_stages) make_stage_lines(m);
  if (m->subject->has_stages && m->n_axes == 0) {
    make_microbatches(m);
    text_add(m->out, "}\n");
    return;
  }
  make_settings(m);
  make_attention(m);
  make_batch_line(m);
  if (CHOOSE(m, 4) == 3) make_partial_line(m);
  for (int i = 0; i < 6; i++) {
    int piece = piece_begin(m->choices);
    int kind = CHOOSE(m, NONE + ARRAY_LENGTH(makes));
    if (kind >= NONE) makes[kind - NONE](m);
    piece_end(m->choices, piece);
  }
  text_add(m->out, "}\n");
}

const char *plan_draw(Choices *choices, const PlanSubject *subject,
                      int *out_lines, int64_t *out_samples) {
  Arena *arena = choices->arena;
  Text out = text_create(arena);
  PlanMaker m = {.choices = choices,
                 .arena = arena,
                 .subject = subject,
                 .graph = subject->graph,
                 .out = &out,
                 .lines = out_lines};
  look_at_graph(&m);
  make_mesh(&m);
  make_lines(&m);
  *out_samples = choose_samples(&m);
  return text_string(&out);
}
