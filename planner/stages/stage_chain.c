/*
 * stage_chain.c -- finds the borders of a model, and the piece of each unit.
 *
 *     %3 = add %1, %2 "block[0].add"     one value is read on: a border
 *     %4 = dot %3, %9 "block[1].q"       behind it %3 is read, too: none
 *
 * A border has a text that `cut after` understands: the shortest path of which
 * its node is the last one.
 */
#include "planner/stages/stage_chain.h"

#include <string.h>

typedef struct Border {
  int node;
  const char *text;
  bool ends_block; /* of a repeat */
} Border;

typedef struct ChainMaker {
  Arena *arena;
  const PlanPaths *paths;
  const Graph *graph; /* that the paths are of */
  const Units *units; /* or NULL */
  const UnitRepeats *repeats;
  int most_open; /* values that are read behind a border */
  Names *names;
  Map *first; /* path -> first node + 1 */
  VEC(Border) borders;
} ChainMaker;

/* ---- borders ---- */

/* By node: parameters or states have a part in it. */
static bool *find_trained(const ChainMaker *m) {
  bool *is_trained = ARENA_ARRAY(m->arena, bool, m->graph->nodes.n);
  for (int id = 0; id < m->graph->nodes.n; id++) {
    const Node *node = m->graph->nodes.data[id];
    if (node->op == OP_input) {
      Role role = m->graph->inputs.data[node_int(node, ATTR_index, 0)].role;
      is_trained[id] = role == ROLE_param || role == ROLE_state;
    }
    for (int i = 0; i < node->n_inputs; i++)
      is_trained[id] |= is_trained[node->inputs[i].node];
  }
  return is_trained;
}

/* By node: the last one that reads it.  Results of the model are kept where
 * they are made. */
static int *last_readers(const ChainMaker *m) {
  int *last = ARENA_ARRAY(m->arena, int, m->graph->nodes.n);
  for (int id = 0; id < m->graph->nodes.n; id++)
    for (int i = 0; i < m->graph->nodes.data[id]->n_inputs; i++)
      last[m->graph->nodes.data[id]->inputs[i].node] = id;
  return last;
}

/* The prefix of a path that ends before this place. */
static const char *prefix(Arena *arena, const char *path, const char *end) {
  return arena_printf(arena, "%.*s", (int)(end - path), path);
}

/* The last node that `cut after` finds for the text.  Returns -1 if none. */
static int last_node(const ChainMaker *m, const char *text, const int *last) {
  PathList found = {0};
  int at = -1;
  if (!plan_paths_find_text(m->paths, text, &found)) return -1;
  for (int i = 0; i < found.n; i++) {
    intptr_t first =
        (intptr_t)map_get(m->first, name_intern(m->names, found.data[i]));
    if (first > 0 && last[first - 1] > at) at = last[first - 1];
  }
  return at;
}

/* The shortest prefix of the path of a node whose last node it is. */
static const char *border_text(const ChainMaker *m, int id, const int *last) {
  Name path = m->graph->nodes.data[id]->path;
  if (!path || !path[0]) return NULL;
  for (const char *end = path + 1;; end++) {
    if (*end != '.' && *end != '[' && *end != '\0' && *end != '!') continue;
    const char *text = prefix(m->arena, path, end);
    if (last_node(m, text, last) == id) return text;
    if (*end == '\0') return NULL;
  }
}

static bool is_block(const ChainMaker *m, const char *text) {
  const UnitRepeats *repeats = m->repeats;
  size_t n = strlen(text);
  for (int r = 0; r < repeats->n; r++)
    if (repeat_index(&repeats->repeats[r], text) >= 0 && text[n - 1] == ']' &&
        !strchr(text + strlen(repeats->repeats[r].name), '.'))
      return true;
  return false;
}

/* Fills in the first node of each path, and by that node its last one. */
static int *find_paths(ChainMaker *m) {
  int n = m->graph->nodes.n;
  int *last = ARENA_ARRAY(m->arena, int, n + 1);
  m->first = map_create(m->arena);
  for (int id = 0; id < n; id++) {
    Name path = m->graph->nodes.data[id]->path;
    if (m->graph->nodes.data[id]->op == OP_input || !path || !path[0]) continue;
    Name name = name_intern(m->names, path);
    intptr_t first = (intptr_t)map_get(m->first, name);
    if (!first) map_put(m->first, name, (void *)(intptr_t)(first = id + 1));
    last[first - 1] = id;
  }
  return last;
}

static bool is_scalar(const Node *node) {
  return node->n_results > 0 && type_elements(node->types[0]) <= 1;
}

/* By node: the first node of its path, or itself. */
static const int *find_firsts(const ChainMaker *m) {
  int *firsts = ARENA_ARRAY(m->arena, int, m->graph->nodes.n + 1);
  for (int id = 0; id < m->graph->nodes.n; id++) {
    Name path = m->graph->nodes.data[id]->path;
    intptr_t first =
        path && path[0]
            ? (intptr_t)map_get(m->first, name_intern(m->names, path))
            : 0;
    firsts[id] = first > 0 ? (int)first - 1 : id;
  }
  return firsts;
}

/* A node of a path that begins before a border belongs to the stage before it.
 * Returns whether such a node, up to `end`, reads a value of the stage behind.
 */
static bool goes_back(const ChainMaker *m, const bool *is_trained,
                      const int *firsts, int border, int end) {
  for (int id = border + 1; id <= end; id++) {
    const Node *node = m->graph->nodes.data[id];
    if (node->op == OP_input || firsts[id] > border) continue;
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      bool is_behind = from > border && firsts[from] > border;
      if (is_behind && is_trained[from] &&
          m->graph->nodes.data[from]->op != OP_input)
        return true;
    }
  }
  return false;
}

/* Few values that are trained are read behind a border, scalars beside them. */
static void find_borders(ChainMaker *m) {
  const bool *is_trained = find_trained(m);
  const int *last_reader = last_readers(m), *last = find_paths(m);
  const int *firsts = find_firsts(m);
  int end = -1; /* of the paths that have begun */
  int n = m->graph->nodes.n, n_open = 0;
  int *closing = ARENA_ARRAY(m->arena, int, n + 2);
  for (int id = 0; id + 1 < n; id++) {
    const Node *node = m->graph->nodes.data[id];
    bool is_open = node->op != OP_input && is_trained[id] &&
                   last_reader[id] > id && !is_scalar(node);
    n_open += is_open - closing[id];
    if (last[id] > end) end = last[id];
    if (is_open) closing[last_reader[id]]++;
    if (!is_open || n_open > m->most_open ||
        goes_back(m, is_trained, firsts, id, end))
      continue;
    const char *text = border_text(m, id, last);
    if (text)
      vec_push(m->arena, &m->borders, ((Border){id, text, is_block(m, text)}));
  }
}

/* Leaves those between blocks where there are too many, then every second one,
 * and so on. */
static void thin(ChainMaker *m) {
  int n = 0;
  if (m->borders.n < MOST_PIECES) return;
  for (int i = 0; i < m->borders.n; i++)
    if (m->borders.data[i].ends_block)
      m->borders.data[n++] = m->borders.data[i];
  if (n > 0) m->borders.n = n;
  while (m->borders.n >= MOST_PIECES) {
    n = 0;
    for (int i = 1; i < m->borders.n; i += 2)
      m->borders.data[n++] = m->borders.data[i];
    m->borders.n = n;
  }
}

/* ---- units ---- */

static int piece_of(const ChainMaker *m, int node) {
  int piece = 0;
  while (piece < m->borders.n && m->borders.data[piece].node < node) piece++;
  return piece;
}

/* The first path of the unit that the forward graph has. */
static const char *unit_path(const ChainMaker *m, const PlanUnit *unit) {
  const Graph *graph = m->units->graph;
  for (int i = 0; i < unit->kernels.n; i++) {
    int id = unit->kernels.data[i].id;
    const Node *node = graph->nodes.data[id];
    if (node->phase != PHASE_forward) continue;
    if (node->path && map_has(m->first, name_intern(m->names, node->path)))
      return node->path;
    for (int k = 0; node->body && k < node->body->nodes.n; k++) {
      Name path = graph_path(node->body, k);
      if (node->body->nodes.data[k]->op != OP_input && path && *path &&
          map_has(m->first, name_intern(m->names, path)))
        return path;
    }
  }
  return NULL;
}

/* "block[3].q" of block 7: "block[7].q". */
static const char *of_block(Arena *arena, const Repeat *repeat,
                            const char *path, int64_t block) {
  const char *at = strstr(path, repeat->name);
  const char *rest = strchr(at + strlen(repeat->name), ']');
  return arena_printf(arena, "%.*s%s[%lld%s", (int)(at - path), path,
                      repeat->name, (long long)block, rest);
}

static int piece_of_path(const ChainMaker *m, const char *path) {
  intptr_t first = (intptr_t)map_get(m->first, name_intern(m->names, path));
  return first > 0 ? piece_of(m, (int)first - 1) : 0;
}

static UnitPieces pieces_of(const ChainMaker *m, const PlanUnit *unit) {
  const char *path = unit_path(m, unit);
  const UnitRepeats *repeats = m->units->repeats;
  for (int r = 0; path && r < repeats->n; r++) {
    int index = repeat_index(&repeats->repeats[r], path);
    if (index < 0) continue;
    PathRange blocks = unit_blocks(repeats, &repeats->repeats[r], index);
    int n = (int)(blocks.last - blocks.first + 1);
    int *pieces = ARENA_ARRAY(m->arena, int, n);
    for (int i = 0; i < n; i++)
      pieces[i] = piece_of_path(
          m, of_block(m->arena, &repeats->repeats[r], path, blocks.first + i));
    return (UnitPieces){n, pieces};
  }
  int *piece = ARENA_ARRAY(m->arena, int, 1);
  *piece = path ? piece_of_path(m, path) : 0;
  return (UnitPieces){1, piece};
}

static const UnitPieces *find_pieces(const ChainMaker *m) {
  UnitPieces *out = ARENA_ARRAY(m->arena, UnitPieces, m->units->units.n + 1);
  for (int u = 0; u < m->units->units.n; u++)
    out[u] = pieces_of(m, m->units->units.data[u]);
  return out;
}

/* ---- pieces of paths ---- */

/* Gradients are behind the border where their values are. */
static const char *forward_path(const char *path) {
  static const char prefix[] = "grad.";
  bool is_back = strncmp(path, prefix, sizeof prefix - 1) == 0;
  return is_back ? path + sizeof prefix - 1 : path;
}

static void name_piece(const ChainMaker *m, Name path, Map *out) {
  const UnitRepeats *repeats = m->units->repeats;
  if (!path || !*path || map_has(out, path)) return;
  const char *own = forward_path(path);
  for (int r = 0; r < repeats->n; r++) {
    int index = repeat_index(&repeats->repeats[r], own);
    if (index < 0) continue;
    PathRange blocks = unit_blocks(repeats, &repeats->repeats[r], index);
    own = of_block(m->arena, &repeats->repeats[r], own, blocks.first);
    break;
  }
  intptr_t first = (intptr_t)map_get(m->first, name_intern(m->names, own));
  if (first > 0)
    map_put(out, path, (void *)(intptr_t)(piece_of(m, (int)first - 1) + 1));
}

static Map *name_pieces(const ChainMaker *m) {
  Map *out = map_create(m->arena);
  const Graph *graph = m->units->graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    name_piece(m, graph_path(graph, id), out);
    for (int k = 0; node->body && k < node->body->nodes.n; k++)
      name_piece(m, graph_path(node->body, k), out);
  }
  return out;
}

static Map *name_forward(const ChainMaker *m) {
  Map *out = map_create(m->arena);
  for (int i = 0; i < map_size(m->first); i++) {
    intptr_t first = (intptr_t)map_value_at(m->first, i);
    map_put(out, map_key_at(m->first, i),
            (void *)(intptr_t)(piece_of(m, (int)first - 1) + 1));
  }
  return out;
}

int stage_chain_piece(const StageChain *chain, Name path) {
  return path ? (int)(intptr_t)map_get(chain->named, path) - 1 : -1;
}

/* ---- borders between units ---- */

bool unit_edge_leaves(const UnitPieces *from, const UnitPieces *to, int i) {
  return from->n != to->n || from->pieces[i] != to->pieces[i];
}

/* By border: the value of an edge is sent over it. */
static const bool *find_sent(const ChainMaker *m, const UnitPieces *pieces) {
  bool *is_sent = ARENA_ARRAY(m->arena, bool, m->borders.n + 1);
  for (int e = 0; e < m->units->edges.n; e++) {
    const UnitEdge *edge = &m->units->edges.data[e];
    const UnitPieces *from = &pieces[edge->from], *to = &pieces[edge->to];
    for (int i = 0; i < from->n && !edge->is_backward; i++)
      is_sent[from->pieces[i]] |= unit_edge_leaves(from, to, i);
  }
  return is_sent;
}

static void keep_sent(ChainMaker *m, const bool *is_sent) {
  int n = 0;
  for (int i = 0; i < m->borders.n; i++)
    if (is_sent[i]) m->borders.data[n++] = m->borders.data[i];
  m->borders.n = n;
}

/* The unit that begins last before the end of the piece. */
static int unit_before(const ChainMaker *m, const UnitPieces *pieces,
                       int piece) {
  int unit = 0, last = -1;
  for (int u = 0; u < m->units->units.n; u++)
    for (int i = 0; i < pieces[u].n; i++)
      if (pieces[u].pieces[i] <= piece && pieces[u].pieces[i] > last) {
        last = pieces[u].pieces[i];
        unit = u;
      }
  return unit;
}

static const InnerBorder *
find_inner(const ChainMaker *m, const UnitPieces *pieces, const bool *is_sent) {
  InnerBorder *out = ARENA_ARRAY(m->arena, InnerBorder, m->borders.n + 1);
  for (int i = 0; i < m->borders.n; i++)
    if (!is_sent[i])
      out[i] =
          (InnerBorder){m->graph->nodes.data[m->borders.data[i].node]->types[0],
                        unit_before(m, pieces, i)};
  return out;
}

/* ---- parameters of several pieces ---- */

static void note_reader(const ChainMaker *m, int id, int node, int *first,
                        int *last) {
  int piece = piece_of(m, node);
  if (first[id] < 0) first[id] = piece;
  last[id] = piece;
}

/* Values that depend on parameters alone count as these. */
static void find_shared(const ChainMaker *m, StageChain *out) {
  const Graph *graph = m->graph;
  int n = graph->nodes.n;
  int *first = ARENA_ARRAY(m->arena, int, n),
      *last = ARENA_ARRAY(m->arena, int, n);
  int *param = ARENA_ARRAY(m->arena, int, n); /* by node: input + 1 */
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    first[id] = -1;
    if (node->op == OP_input) param[id] = id + 1;
    bool is_alone = node->n_inputs == 1 && param[node->inputs[0].node] > 0;
    if (is_alone) param[id] = param[node->inputs[0].node];
    for (int i = 0; i < node->n_inputs && !is_alone; i++)
      if (param[node->inputs[i].node] > 0)
        note_reader(m, param[node->inputs[i].node] - 1, id, first, last);
  }
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_input || first[id] < 0 || first[id] == last[id])
      continue;
    Name path = graph->inputs.data[node_int(node, ATTR_index, 0)].path;
    for (int p = 0; p < m->units->params.n; p++)
      if (strcmp(m->units->params.data[p].path, path) == 0)
        vec_push(m->arena, &out->shared,
                 ((SharedParam){p, first[id], last[id]}));
  }
}

/* Without pieces of units and of paths. */
static StageChain chain_of(const ChainMaker *m) {
  const char **ends = ARENA_ARRAY(m->arena, const char *, m->borders.n + 1);
  int *nodes = ARENA_ARRAY(m->arena, int, m->borders.n + 1);
  for (int i = 0; i < m->borders.n; i++) {
    ends[i] = m->borders.data[i].text;
    nodes[i] = m->borders.data[i].node;
  }
  return (StageChain){.n = m->borders.n + 1, .ends = ends, .nodes = nodes};
}

StageChain stage_chain_of(Arena *arena, const PlanPaths *paths,
                          const Units *units, BorderPlaces borders) {
  ChainMaker m = {.arena = arena,
                  .paths = paths,
                  .graph = plan_paths_graph(paths),
                  .units = units,
                  .repeats = units->repeats,
                  .most_open = 1,
                  .names = names_create(arena)};
  find_borders(&m);
  thin(&m);
  const UnitPieces *pieces = find_pieces(&m);
  const bool *is_sent = find_sent(&m, pieces);
  if (borders == BORDERS_between_kernels) keep_sent(&m, is_sent);
  StageChain out = chain_of(&m);
  if (borders == BORDERS_all) out.inner = find_inner(&m, pieces, is_sent);
  out.units = find_pieces(&m);
  out.named = name_pieces(&m);
  find_shared(&m, &out);
  return out;
}

StageChain stage_chain_of_forward(Arena *arena, const PlanPaths *paths,
                                  const UnitRepeats *repeats, int most_open) {
  ChainMaker m = {.arena = arena,
                  .paths = paths,
                  .graph = plan_paths_graph(paths),
                  .repeats = repeats,
                  .most_open = most_open,
                  .names = names_create(arena)};
  find_borders(&m);
  thin(&m);
  StageChain out = chain_of(&m);
  out.named = name_forward(&m);
  out.names = m.names;
  return out;
}
