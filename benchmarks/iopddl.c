/*
 * iopddl.c -- reads a problem of the contest.
 *
 * Keys come in any order, so numbers are kept as they are read, and become a
 * problem when all are there.  Lists of lists are flat: all numbers, the
 * number of each list's first, and where it stands in the file.
 */
#include "benchmarks/iopddl.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "support/text.h"

typedef struct Place {
  int line, column;
} Place;

/* A list of lists of numbers. */
typedef struct Lists {
  VEC(int64_t) numbers;
  VEC(int) begins;
  VEC(Place) places;
  bool is_there;
} Lists;

enum { MOST_DEPTH = 64, MOST_KEY = 31, BUFFER = 1 << 16 };

typedef struct Reader {
  Arena *arena;
  const char *name;
  IopddlRead *read;
  void *user;
  char buffer[BUFFER];
  int at, n;
  Place place; /* of the next byte */
  Lists intervals, costs, usages, pairs, pair_costs;
  int64_t limit;
  bool has_limit, has_problem, has_nodes, has_edges;
} Reader;

static Status fault_at(const Reader *r, Place place, const char *text) {
  return status_make(STATUS_invalid, "%s:%d:%d: %s", r->name, place.line,
                     place.column, text);
}

static Status fault(const Reader *r, const char *text) {
  return fault_at(r, r->place, text);
}

/* ---- bytes ---- */

/* Returns the next byte and leaves it there.  Returns -1 at the end. */
static int peek(Reader *r) {
  if (r->at == r->n) {
    if (r->n < 0) return -1;
    r->at = 0;
    r->n = r->read(r->user, r->buffer, BUFFER);
    if (r->n <= 0) {
      r->at = r->n = -1;
      return -1;
    }
  }
  return (unsigned char)r->buffer[r->at];
}

static void next(Reader *r) {
  if (r->buffer[r->at++] == '\n') {
    r->place.line++;
    r->place.column = 1;
  } else if (r->place.column < INT32_MAX) {
    r->place.column++;
  }
}

static int peek_token(Reader *r) {
  int c = peek(r);
  while (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
    next(r);
    c = peek(r);
  }
  return c;
}

static Status expect(Reader *r, char wanted) {
  int c = peek_token(r);
  if (c == wanted) {
    next(r);
    return STATUS_OK;
  }
  char text[64];
  if (c < 0)
    snprintf(text, sizeof text, "the file ends where '%c' must be", wanted);
  else
    snprintf(text, sizeof text, "'%c' must be here", wanted);
  return fault(r, text);
}

/* Reads a comma, or the end of a list or an object. */
static Status more(Reader *r, char end, bool *out_more) {
  int c = peek_token(r);
  *out_more = c == ',';
  if (c == ',') {
    next(r);
    return STATUS_OK;
  }
  return expect(r, end);
}

/* ---- values ---- */

/* Reads a string; a longer key than any known is cut. */
static Status read_string(Reader *r, char out[MOST_KEY + 1]) {
  TRY(expect(r, '"'));
  int n = 0;
  for (int c = peek(r); c != '"'; c = peek(r)) {
    if (c < 0) return fault(r, "the file ends in a string");
    if (c < ' ') return fault(r, "a string may not hold this byte");
    if (c == '\\') {
      next(r);
      c = peek(r);
      if (c < 0) return fault(r, "the file ends in a string");
    }
    if (n < MOST_KEY) out[n++] = (char)c;
    next(r);
  }
  next(r);
  out[n] = 0;
  return STATUS_OK;
}

static Status read_number(Reader *r, int64_t *out) {
  int c = peek_token(r);
  Place place = r->place;
  if (c < 0) return fault(r, "the file ends where a number must be");
  if (c == '-') return fault(r, "a number may not be negative");
  if (c < '0' || c > '9') return fault(r, "a number must be here");
  int64_t value = 0;
  for (; c >= '0' && c <= '9'; c = peek(r)) {
    if (value > (INT64_MAX - (c - '0')) / 10)
      return fault_at(r, place, "a number has at most 63 bits");
    value = value * 10 + (c - '0');
    next(r);
  }
  if (c == '.' || c == 'e' || c == 'E')
    return fault_at(r, place, "a number must be an integer");
  *out = value;
  return STATUS_OK;
}

/* Skips `true`, `-1.5e3` and the like. */
static Status skip_word(Reader *r) {
  int n = 0;
  for (int c = peek(r);
       c >= 0 && (c == '-' || c == '+' || c == '.' || (c >= '0' && c <= '9') ||
                  (c >= 'a' && c <= 'z') || c == 'E');
       c = peek(r), n++)
    next(r);
  return n ? STATUS_OK : fault(r, "a value must be here");
}

/* Reads what stands after '[', '{' or ',' inside of an unknown value. */
static Status skip_key(Reader *r, char open) {
  char key[MOST_KEY + 1];
  if (open == '[') return STATUS_OK;
  TRY(read_string(r, key));
  return expect(r, ':');
}

/* Closes lists and objects that end here, and goes to the next value. */
static Status skip_ends(Reader *r, const char *open, int *depth) {
  while (*depth > 0) {
    bool has_more;
    char inner = open[*depth - 1];
    TRY(more(r, inner == '[' ? ']' : '}', &has_more));
    if (has_more) return skip_key(r, inner);
    --*depth;
  }
  return STATUS_OK;
}

/* Skips the value of an unknown key. */
static Status skip_value(Reader *r) {
  char open[MOST_DEPTH], text[MOST_KEY + 1];
  int depth = 0;
  do {
    int c = peek_token(r);
    if (c == '[' || c == '{') {
      if (depth == MOST_DEPTH) return fault(r, "lists nest too deep");
      next(r);
      open[depth++] = (char)c;
      if (peek_token(r) != (c == '[' ? ']' : '}')) {
        TRY(skip_key(r, (char)c));
        continue;
      }
      next(r);
      depth--;
    } else if (c == '"') {
      TRY(read_string(r, text));
    } else {
      TRY(skip_word(r));
    }
    TRY(skip_ends(r, open, &depth));
  } while (depth > 0);
  return STATUS_OK;
}

static Status read_list(Reader *r, Lists *out) {
  bool has_more = true;
  peek_token(r);
  Place place = r->place;
  TRY(expect(r, '['));
  vec_push(r->arena, &out->places, place);
  vec_push(r->arena, &out->begins, out->numbers.n);
  if (peek_token(r) == ']') {
    next(r);
    return STATUS_OK;
  }
  while (has_more) {
    int64_t number;
    TRY(read_number(r, &number));
    if (out->numbers.n == 1 << 26)
      return fault(r, "there are too many numbers");
    vec_push(r->arena, &out->numbers, number);
    TRY(more(r, ']', &has_more));
  }
  return STATUS_OK;
}

static Status read_lists(Reader *r, Lists *out) {
  bool has_more = true;
  if (out->is_there) return fault(r, "this key is there twice");
  out->is_there = true;
  TRY(expect(r, '['));
  if (peek_token(r) == ']') {
    next(r);
  } else {
    while (has_more) {
      TRY(read_list(r, out));
      TRY(more(r, ']', &has_more));
    }
  }
  vec_push(r->arena, &out->begins, out->numbers.n);
  return STATUS_OK;
}

/* ---- objects ---- */

typedef Status ReadKey(Reader *r, const char *key);

static Status read_object(Reader *r, ReadKey *each) {
  bool has_more = true;
  TRY(expect(r, '{'));
  if (peek_token(r) == '}') {
    next(r);
    return STATUS_OK;
  }
  while (has_more) {
    char key[MOST_KEY + 1];
    TRY(read_string(r, key));
    TRY(expect(r, ':'));
    TRY(each(r, key));
    TRY(more(r, '}', &has_more));
  }
  return STATUS_OK;
}

static Status read_nodes(Reader *r, const char *key) {
  if (!strcmp(key, "intervals")) return read_lists(r, &r->intervals);
  if (!strcmp(key, "costs")) return read_lists(r, &r->costs);
  if (!strcmp(key, "usages")) return read_lists(r, &r->usages);
  return skip_value(r);
}

static Status read_edges(Reader *r, const char *key) {
  if (!strcmp(key, "nodes")) return read_lists(r, &r->pairs);
  if (!strcmp(key, "costs")) return read_lists(r, &r->pair_costs);
  return skip_value(r);
}

static Status read_problem(Reader *r, const char *key) {
  if (!strcmp(key, "nodes")) return read_object(r, read_nodes);
  if (!strcmp(key, "edges")) return read_object(r, read_edges);
  if (strcmp(key, "usage_limit") != 0) return skip_value(r);
  if (peek_token(r) == 'n') return skip_word(r); /* null: no limit */
  r->has_limit = true;
  return read_number(r, &r->limit);
}

static Status read_file(Reader *r, const char *key) {
  if (strcmp(key, "problem") != 0) return skip_value(r);
  r->has_problem = true;
  return read_object(r, read_problem);
}

/* ---- the problem ---- */

static int n_lists(const Lists *lists) {
  return lists->begins.n > 0 ? lists->begins.n - 1 : 0;
}

static int64_t length_of(const Lists *lists, int i) {
  return lists->begins.data[i + 1] - lists->begins.data[i];
}

static const int64_t *list_of(const Lists *lists, int i) {
  return lists->numbers.data + lists->begins.data[i];
}

static Status list_fault(const Reader *r, const Lists *lists, int i,
                         const char *text) {
  return fault_at(r, lists->places.data[i], text);
}

static Status check_counts(const Reader *r) {
  if (!r->has_problem) return fault(r, "'problem' is missing");
  if (!r->costs.is_there) return fault(r, "'costs' of nodes is missing");
  if (r->intervals.is_there && n_lists(&r->intervals) != n_lists(&r->costs))
    return fault(r, "nodes have other counts of 'intervals' and 'costs'");
  if (r->usages.is_there && n_lists(&r->usages) != n_lists(&r->costs))
    return fault(r, "nodes have other counts of 'usages' and 'costs'");
  if (r->usages.is_there != r->intervals.is_there)
    return fault(r, "'intervals' and 'usages' need each other");
  if (n_lists(&r->pairs) != n_lists(&r->pair_costs))
    return fault(r, "edges have other counts of 'nodes' and 'costs'");
  return STATUS_OK;
}

static Status add_node(const Reader *r, FactorProblem *problem, int i) {
  int64_t n = length_of(&r->costs, i);
  if (n == 0) return list_fault(r, &r->costs, i, "a node needs a strategy");
  factor_add_variable(problem, (int)n, list_of(&r->costs, i));
  if (!r->usages.is_there) return STATUS_OK;
  if (length_of(&r->usages, i) != n)
    return list_fault(r, &r->usages, i,
                      "a node needs a usage for each strategy");
  if (length_of(&r->intervals, i) != 2)
    return list_fault(r, &r->intervals, i, "an interval has two numbers");
  const int64_t *interval = list_of(&r->intervals, i);
  if (interval[0] > interval[1])
    return list_fault(r, &r->intervals, i, "an interval ends before it begins");
  factor_add_usage(problem, i, interval[0], interval[1],
                   list_of(&r->usages, i));
  return STATUS_OK;
}

static Status add_edge(const Reader *r, FactorProblem *problem, int i) {
  if (length_of(&r->pairs, i) != 2)
    return list_fault(r, &r->pairs, i, "an edge joins two nodes");
  const int64_t *ends = list_of(&r->pairs, i);
  for (int k = 0; k < 2; k++)
    if (ends[k] >= n_lists(&r->costs))
      return list_fault(r, &r->pairs, i, "there is no such node");
  if (ends[0] == ends[1])
    return list_fault(r, &r->pairs, i, "an edge joins two different nodes");
  int64_t n =
      length_of(&r->costs, (int)ends[0]) * length_of(&r->costs, (int)ends[1]);
  if (length_of(&r->pair_costs, i) != n)
    return list_fault(r, &r->pair_costs, i,
                      "an edge needs a cost for each pair of strategies");
  factor_add_pair(problem, (int)ends[0], (int)ends[1],
                  list_of(&r->pair_costs, i));
  return STATUS_OK;
}

static Status make_problem(const Reader *r, FactorProblem **out,
                           int *out_n_variables) {
  TRY(check_counts(r));
  FactorProblem *problem = factor_create(r->arena);
  int n = n_lists(&r->costs);
  for (int i = 0; i < n; i++) TRY(add_node(r, problem, i));
  for (int i = 0; i < n_lists(&r->pairs); i++) TRY(add_edge(r, problem, i));
  if (r->has_limit) factor_limit(problem, r->limit);
  *out = problem;
  *out_n_variables = n;
  return STATUS_OK;
}

Status iopddl_parse(Arena *arena, const char *name, IopddlRead *read,
                    void *user, FactorProblem **out, int *out_n_variables) {
  Reader *r = ARENA_NEW(arena, Reader);
  r->arena = arena;
  r->name = name;
  r->read = read;
  r->user = user;
  r->place = (Place){1, 1};
  TRY(read_object(r, read_file));
  if (peek_token(r) >= 0) return fault(r, "the file must end here");
  return make_problem(r, out, out_n_variables);
}

static int read_packed(void *user, char *bytes, int n) {
  return gzread(user, bytes, (unsigned)n);
}

Status iopddl_read(Arena *arena, const char *path, FactorProblem **out,
                   int *out_n_variables) {
  gzFile file = gzopen(path, "rb");
  if (!file) return status_make(STATUS_io, "cannot open '%s'", path);
  gzbuffer(file, 1 << 18);
  Status status =
      iopddl_parse(arena, path, read_packed, file, out, out_n_variables);
  int error = Z_OK;
  gzerror(file, &error);
  gzclose(file);
  if (error != Z_OK && error != Z_STREAM_END)
    return status_make(STATUS_io, "cannot unpack '%s'", path);
  return status;
}
