/*
 * pipedream_profile.c -- reads PipeDream's profiles.
 *
 *     node2 -- Conv2d(3, 64) -- forward_compute_time=13.1, \
 *         backward_compute_time=33.8, activation_size=1644167168.0, \
 *         parameter_size=7168.0 [-- stage_id=0]
 *     <TAB>node2 -- node3
 *
 * Times are in milliseconds, sizes in bytes; an activation may be a list,
 * [6291456.0; 131072.0], which is summed.
 */
#include "benchmarks/pipedream_profile.h"

#include <math.h>
#include <string.h>

static const char separator[] = " -- ";
enum { MOST_PARTS = 5, MOST_BYTES = 1 << 26 };
/* So that sums over all nodes stay far below 2^63. */
static const double most_ms = 1e7, most_bytes = 1e14;

typedef struct Line {
  int number; /* in the file, from 1 */
  const char *id, *name;
  int64_t id_number;
  CutNode costs;
} Line;

typedef struct Reader {
  Arena *arena;
  const char *path;
  int line; /* the one that is read */
  VEC(Line) nodes;
  VEC(CutEdge) edges; /* indices of nodes, in the order of lines */
  VEC(int) edge_lines;
  Names *names;
  Map *by_id; /* Name -> Line number + 1 as a pointer */
} Reader;

static bool fail(const Reader *reader, int line, const char *text) {
  message_print("%s:%d: error: %s\n", reader->path, line, text);
  return false;
}

/* ---- lines ---- */

/* Splits at " -- "; returns how many parts there are, at most MOST_PARTS. */
static int split(char *text, char **parts) {
  int n = 0;
  while (n < MOST_PARTS) {
    parts[n++] = text;
    char *next = strstr(text, separator);
    if (!next) break;
    *next = '\0';
    text = next + strlen(separator);
  }
  return n;
}

/* Reads one number of a field. */
static bool read_number(const Reader *reader, const char *name,
                        const char *text, size_t n, double most, double *out) {
  double value;
  if (!text_read_real(text, n, &value) || !isfinite(value))
    return fail(reader, reader->line,
                arena_printf(reader->arena, "%s: '%.*s' is not a number", name,
                             n < 40 ? (int)n : 40, text));
  if (value < 0 || value > most)
    return fail(reader, reader->line,
                arena_printf(reader->arena, "%s: %g is not between 0 and %g",
                             name, value, most));
  *out = value;
  return true;
}

/* Reads NAME=NUMBER or, for a list, NAME=[NUMBER; NUMBER]; moves *text behind
 * the comma that follows. */
static bool read_field(const Reader *reader, char **text, const char *name,
                       double most, double *out) {
  size_t n = strlen(name);
  if (strncmp(*text, name, n) || (*text)[n] != '=')
    return fail(
        reader, reader->line,
        arena_printf(reader->arena, "expected '%s=' at '%.40s'", name, *text));
  char *value = *text + n + 1, *end = strstr(value, ", ");
  if (!end) end = value + strlen(value);
  *text = *end ? end + 2 : end;
  if (*value != '[')
    return read_number(reader, name, value, (size_t)(end - value), most, out);
  if (end[-1] != ']')
    return fail(reader, reader->line,
                arena_printf(reader->arena, "%s: the list has no ']'", name));
  *out = 0;
  for (char *item = value + 1; item < end;) {
    char *stop = item;
    while (stop < end - 1 && *stop != ';') stop++;
    double number;
    if (!read_number(reader, name, item, (size_t)(stop - item), most, &number))
      return false;
    *out += number;
    item = stop + (*stop == ';' && stop[1] == ' ' ? 2 : 1);
  }
  return true;
}

/* Returns the number of an id: of node12, 12.  Returns -1 if it is no id. */
static int64_t id_number(const char *id) {
  if (strncmp(id, "node", 4) || !id[4] || strlen(id) > 13) return -1;
  int64_t number = 0;
  for (const char *digit = id + 4; *digit; digit++) {
    if (*digit < '0' || *digit > '9') return -1;
    number = 10 * number + (*digit - '0');
  }
  return number;
}

static bool read_node(Reader *reader, char *text) {
  char *parts[MOST_PARTS];
  int n = split(text, parts);
  if (n != 3 && n != 4)
    return fail(reader, reader->line,
                "expected 'ID -- DESCRIPTION -- TIMES AND SIZES', or an edge "
                "after a tab");
  Line line = {.number = reader->line, .id = parts[0], .name = parts[1]};
  line.id_number = id_number(line.id);
  if (line.id_number < 0)
    return fail(reader, reader->line,
                arena_printf(reader->arena, "'%.40s' is not node and a number",
                             line.id));
  double forward, backward, activation, parameter;
  char *fields = parts[2];
  if (!read_field(reader, &fields, "forward_compute_time", most_ms, &forward) ||
      !read_field(reader, &fields, "backward_compute_time", most_ms,
                  &backward) ||
      !read_field(reader, &fields, "activation_size", most_bytes,
                  &activation) ||
      !read_field(reader, &fields, "parameter_size", most_bytes, &parameter))
    return false;
  if (*fields)
    return fail(reader, reader->line,
                arena_printf(reader->arena, "unexpected '%.40s'", fields));
  line.costs = (CutNode){llround(forward * 1e6), llround(backward * 1e6),
                         llround(activation), llround(parameter)};
  Name name = name_intern(reader->names, line.id);
  if (map_has(reader->by_id, name))
    return fail(
        reader, reader->line,
        arena_printf(
            reader->arena, "%s is also on line %d", line.id,
            reader->nodes.data[(intptr_t)map_get(reader->by_id, name) - 1]
                .number));
  vec_push(reader->arena, &reader->nodes, line);
  map_put(reader->by_id, name, (void *)(intptr_t)reader->nodes.n);
  return true;
}

/* Returns the index of a node.  Returns -1 after a message. */
static int find_node(Reader *reader, const char *id) {
  intptr_t node =
      (intptr_t)map_get(reader->by_id, name_intern(reader->names, id));
  if (!node)
    fail(reader, reader->line,
         arena_printf(reader->arena, "no line above describes the node '%.40s'",
                      id));
  return (int)node - 1;
}

static bool read_edge(Reader *reader, PairMap *seen, char *text) {
  char *parts[MOST_PARTS];
  if (split(text, parts) != 2)
    return fail(reader, reader->line, "expected 'ID -- ID' after the tab");
  CutEdge edge = {find_node(reader, parts[0]), -1};
  if (edge.from < 0 || (edge.to = find_node(reader, parts[1])) < 0)
    return false;
  if (pair_map_get(seen, edge.from, edge.to))
    return fail(reader, reader->line, "this edge is there already");
  pair_map_put(seen, edge.from, edge.to, reader);
  vec_push(reader->arena, &reader->edges, edge);
  vec_push(reader->arena, &reader->edge_lines, reader->line);
  return true;
}

static bool read_lines(Reader *reader, char *text) {
  PairMap *seen = pair_map_create(reader->arena);
  while (*text) {
    char *end = text + strcspn(text, "\n"), *next = *end ? end + 1 : end;
    while (end > text && strchr(" \r", end[-1])) end--;
    *end = '\0';
    reader->line++;
    bool is_edge = *text == '\t';
    if (*text && !(is_edge ? read_edge(reader, seen, text + 1)
                           : read_node(reader, text)))
      return false;
    text = next;
  }
  return true;
}

/* ---- the graph ---- */

/* Marks what is not planned: first sources that are inputs, then __getitem__
 * nodes that nothing reads. */
static bool *find_dropped(const Reader *reader) {
  int n = reader->nodes.n;
  bool *dropped = ARENA_ARRAY(reader->arena, bool, n);
  bool *has_input = ARENA_ARRAY(reader->arena, bool, n);
  bool *has_user = ARENA_ARRAY(reader->arena, bool, n);
  for (int e = 0; e < reader->edges.n; e++) {
    has_input[reader->edges.data[e].to] = true;
    has_user[reader->edges.data[e].from] = true;
  }
  for (int node = 0; node < n; node++) {
    const char *name = reader->nodes.data[node].name;
    dropped[node] = (!has_input[node] && !strncmp(name, "Input", 5)) ||
                    (!has_user[node] && !strncmp(name, "__getitem__", 11));
  }
  return dropped;
}

/* Returns the node of lowest number whose inputs have been taken.  Returns -1
 * if there is none. */
static int next_node(const Reader *reader, const int *n_missing,
                     const bool *taken) {
  int best = -1;
  for (int node = 0; node < reader->nodes.n; node++)
    if (!taken[node] && n_missing[node] == 0 &&
        (best < 0 || reader->nodes.data[node].id_number <
                         reader->nodes.data[best].id_number))
      best = node;
  return best;
}

/* Reports an edge of a circle: from a node that cannot be taken, an input that
 * cannot be taken either is followed until one comes again. */
static bool report_circle(const Reader *reader, const bool *taken) {
  bool *seen = ARENA_ARRAY(reader->arena, bool, reader->nodes.n);
  int node = 0, edge = 0;
  while (taken[node]) node++;
  while (!seen[node]) {
    seen[node] = true;
    for (edge = 0; reader->edges.data[edge].to != node ||
                   taken[reader->edges.data[edge].from];)
      edge++;
    node = reader->edges.data[edge].from;
  }
  return fail(reader, reader->edge_lines.data[edge],
              arena_printf(reader->arena, "%s is part of a circle of edges",
                           reader->nodes.data[node].id));
}

/* Fills in the place of each node in topological order, from 0.  Places of
 * dropped nodes are -1. */
static bool find_places(const Reader *reader, const bool *dropped, int *place,
                        int *out_n) {
  int n = reader->nodes.n, n_placed = 0, node;
  int *n_missing = ARENA_ARRAY(reader->arena, int, n);
  bool *taken = ARENA_ARRAY(reader->arena, bool, n);
  for (int e = 0; e < reader->edges.n; e++)
    n_missing[reader->edges.data[e].to]++;
  while ((node = next_node(reader, n_missing, taken)) >= 0) {
    taken[node] = true;
    place[node] = dropped[node] ? -1 : n_placed++;
    for (int e = 0; e < reader->edges.n; e++)
      if (reader->edges.data[e].from == node)
        n_missing[reader->edges.data[e].to]--;
  }
  for (node = 0; node < n; node++)
    if (!taken[node]) return report_circle(reader, taken);
  *out_n = n_placed;
  return true;
}

static bool make_graph(const Reader *reader, Profile *out) {
  Arena *arena = reader->arena;
  int *place = ARENA_ARRAY(arena, int, reader->nodes.n), n;
  if (!find_places(reader, find_dropped(reader), place, &n)) return false;
  CutNode *nodes = ARENA_ARRAY(arena, CutNode, n);
  const char **ids = ARENA_ARRAY(arena, const char *, n);
  const char **names = ARENA_ARRAY(arena, const char *, n);
  for (int node = 0; node < reader->nodes.n; node++) {
    if (place[node] < 0) continue;
    nodes[place[node]] = reader->nodes.data[node].costs;
    ids[place[node]] = reader->nodes.data[node].id;
    names[place[node]] = reader->nodes.data[node].name;
  }
  CutEdge *edges = ARENA_ARRAY(arena, CutEdge, reader->edges.n);
  int n_edges = 0;
  for (int e = 0; e < reader->edges.n; e++) {
    CutEdge edge = {place[reader->edges.data[e].from],
                    place[reader->edges.data[e].to]};
    if (edge.from >= 0 && edge.to >= 0) edges[n_edges++] = edge;
  }
  *out = (Profile){{n, n_edges, nodes, edges}, ids, names, reader->nodes.n - n};
  return true;
}

bool profile_read(Arena *arena, const char *path, Profile *out) {
  const char *bytes;
  size_t n;
  Status status = file_read(arena, path, MOST_BYTES, &bytes, &n);
  if (status.code != STATUS_ok) {
    message_print("error: %s\n", status.message);
    return false;
  }
  Reader reader = {.arena = arena, .path = path};
  reader.names = names_create(arena);
  reader.by_id = map_create(arena);
  if (strlen(bytes) < n) {
    for (const char *at = bytes; at < bytes + strlen(bytes); at++)
      reader.line += *at == '\n';
    return fail(&reader, reader.line + 1, "a byte is 0: this is no text");
  }
  if (!read_lines(&reader, arena_copy(arena, bytes, n + 1))) return false;
  if (!make_graph(&reader, out)) return false;
  if (out->graph.n_nodes > 0) return true;
  message_print("%s: error: the profile has no node but inputs\n", path);
  return false;
}
