/*
 * plan_line_rows.c -- makes the rows of a table by line of the plan.
 *
 *     shard block[0].attn.wq: H over tensor
 *     shard block[1].attn.wq: H over tensor
 *         =>  shard block[0..1].attn.wq: H over tensor
 *
 * Lines that differ in indices alone are one row if their indices leave no
 * hole: a plan that writes a range out has the table of one that folds it.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/show/inspect.h"

typedef struct LineIndices {
  Span span;
  const char *key; /* "shard block[*].attn.wq: H over tensor" */
  int n;
  int64_t least[MOST_FOLDED], most[MOST_FOLDED];
  bool has_row;
} LineIndices;
typedef VEC(LineIndices) LineVec;

/* Reads "[2]" or "[2..5]"; NULL: it is neither, else where it ends. */
static const char *read_range(const char *at, int64_t *least, int64_t *most) {
  char *end;
  if (*at != '[') return NULL;
  *least = *most = strtoll(at + 1, &end, 10);
  if (end == at + 1) return NULL;
  if (strncmp(end, "..", 2) == 0) {
    const char *second = end + 2;
    *most = strtoll(second, &end, 10);
    if (end == second) return NULL;
  }
  return *end == ']' && *least <= *most ? end + 1 : NULL;
}

static LineIndices read_line(Arena *arena, Span span) {
  LineIndices line = {.span = span};
  Text key = text_create(arena);
  for (const char *at = span_text(arena, span); *at;) {
    const char *end = line.n < MOST_FOLDED ? read_range(at, &line.least[line.n],
                                                        &line.most[line.n])
                                           : NULL;
    line.n += end != NULL;
    text_add_n(&key, end ? "[*]" : at, end ? 3 : 1);
    at = end ? end : at + 1;
  }
  line.key = text_string(&key);
  return line;
}

/* All its ranges are one: "block[0].attn.wq, block[0].attn.wk". */
static bool has_one_range(const LineIndices *line) {
  for (int i = 1; i < line->n; i++)
    if (line->least[i] != line->least[0] || line->most[i] != line->most[0])
      return false;
  return true;
}

static double volume(const LineIndices *line, bool is_one) {
  double product = 1;
  for (int i = 0; i < line->n && (i == 0 || !is_one); i++)
    product *= (double)(line->most[i] - line->least[i] + 1);
  return product;
}

/* The lines with the key of line `first`, as one. */
static LineIndices join_lines(const LineVec *lines, int first,
                              bool *out_has_holes) {
  LineIndices all = lines->data[first];
  bool is_one = true;
  for (int i = first; i < lines->n; i++)
    if (strcmp(lines->data[i].key, all.key) == 0)
      is_one &= has_one_range(&lines->data[i]);
  double sum = 0;
  for (int i = first; i < lines->n; i++) {
    const LineIndices *line = &lines->data[i];
    if (strcmp(line->key, all.key) != 0) continue;
    sum += volume(line, is_one);
    for (int k = 0; k < all.n; k++) {
      if (line->least[k] < all.least[k]) all.least[k] = line->least[k];
      if (line->most[k] > all.most[k]) all.most[k] = line->most[k];
    }
  }
  *out_has_holes = sum != volume(&all, is_one);
  return all;
}

static const char *joined_text(Arena *arena, const LineIndices *line) {
  Text text = text_create(arena);
  const char *at = line->key;
  for (int i = 0; i < line->n; i++) {
    const char *star = strstr(at, "[*]");
    text_add_n(&text, at, (size_t)(star - at));
    text_printf(&text, "[%lld", (long long)line->least[i]);
    if (line->most[i] > line->least[i])
      text_printf(&text, "..%lld", (long long)line->most[i]);
    text_add(&text, "]");
    at = star + 3;
  }
  text_add(&text, at);
  return text_string(&text);
}

static void add_row(Arena *arena, LineVec *lines, int first, PlanLines *out) {
  bool has_holes;
  LineIndices all = join_lines(lines, first, &has_holes);
  PlanLine row = {.text = has_holes ? span_text(arena, all.span)
                                    : joined_text(arena, &all)};
  for (int i = first; i < lines->n; i++) {
    LineIndices *line = &lines->data[i];
    if (i != first && (has_holes || strcmp(line->key, all.key) != 0)) continue;
    vec_push(arena, &row.spans, line->span);
    line->has_row = true;
  }
  vec_push(arena, &out->lines, row);
}

void plan_lines_add(Arena *arena, const Span *spans, int n, PlanLines *out) {
  LineVec lines = {0};
  for (int i = 0; i < n; i++)
    vec_push(arena, &lines, read_line(arena, spans[i]));
  for (int i = 0; i < n; i++)
    if (!lines.data[i].has_row) add_row(arena, &lines, i, out);
}
