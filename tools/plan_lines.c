/*
 * plan_lines.c -- says of each line of a plan what it costs and what it buys.
 *
 *     shard H, F over tensor   384 transfers, 1584 ms exposed    the line costs
 *                              + 240 s, + 900 GB without it      and buys
 *
 * A line costs what its collectives take (collective_pins.c finds the line
 * behind each), and what it buys is the difference to the same plan without it.
 * That plan is compiled and priced in a process of its own: its messages are
 * not for the user, and whatever happens to it, the others are priced.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/syntax/ast.h"
#include "tools/inspect.h"

enum { MOST_AT_A_TIME = 8 };

/* ---- what lines cost ---- */

static void add_lines(Arena *arena, const Ast *ast, PlanLines *out) {
  VEC(Span) spans = {0};
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    for (int k = 0; item->kind == ITEM_plan && k < item->n_pins; k++)
      vec_push(arena, &spans, item->pins[k].span);
  }
  plan_lines_add(arena, spans.data, spans.n, out);
}

static bool has_pin(const PlanLine *line, Span pin) {
  for (int i = 0; i < line->spans.n; i++) {
    Span span = line->spans.data[i];
    if (span.begin <= pin.begin && pin.begin < span.end) return true;
  }
  return false;
}

/* The last row is for what is of no line of the plan. */
static PlanLine *find_line(const PlanLines *lines, const char *plan, Span pin) {
  int rest = lines->lines.n - 1;
  if (!pin.source || strcmp(pin.source->path, plan) != 0)
    return &lines->lines.data[rest];
  for (int i = 0; i < rest; i++)
    if (has_pin(&lines->lines.data[i], pin)) return &lines->lines.data[i];
  return &lines->lines.data[rest];
}

static void add_costs(Tool *tool, const Priced *p, PlanLines *lines) {
  const char *plan = tool->options.plan;
  const PricedClass *class = priced_slowest(p);
  Map *seen = map_create(tool->arena); /* node -> its line, plus 1 */
  for (int i = 0; i < class->queues.n + class->stream.n; i++) {
    bool is_queue = i < class->queues.n;
    const QueueSpan *sent = &class->queues.data[i];
    const StreamSpan *wait = &class->stream.data[i - class->queues.n];
    if (!is_queue && !wait->is_wait) continue;
    const PricedNode *at =
        &p->nodes[is_queue ? sent->instruction : wait->instruction];
    intptr_t row = (intptr_t)map_get(seen, at->node);
    if (!row) {
      Span pin =
          collective_pins(tool->arena, p->c->plan, at->graph, at->id).first;
      row = find_line(lines, plan, pin) - lines->lines.data + 1;
      map_put(seen, at->node, (void *)row);
    }
    PlanLine *line = &lines->lines.data[row - 1];
    line->n_transfers += is_queue;
    line->sent += is_queue ? node_sent_bytes(at->graph, at->id) : 0;
    line->busy += is_queue ? sent->end - sent->begin : 0;
    line->exposed += is_queue ? 0 : priced_length(wait);
  }
}

static int compare_lines(const void *a, const void *b) {
  const PlanLine *x = a, *y = b;
  if (x->exposed != y->exposed) return x->exposed < y->exposed ? 1 : -1;
  if (x->busy != y->busy) return x->busy < y->busy ? 1 : -1;
  return strcmp(x->text, y->text); /* however the file orders them */
}

/* ---- what they buy ---- */

typedef struct Tried {
  Ps step;
  Bytes peak;
} Tried;

static void blank_line(char *text, Span line) {
  uint32_t end = line.end;
  while (text[end] == ' ') end++;
  if (text[end] == ';') line.end = end + 1;
  for (uint32_t i = line.begin; i < line.end; i++)
    if (text[i] != '\n') text[i] = ' ';
}

/* The plan without the lines of a row, which become blanks. */
static const Source *plan_without(Arena *arena, const Source *source,
                                  const PlanLine *line) {
  char *text = arena_strdup(arena, source->text);
  for (int i = 0; i < line->spans.n; i++) blank_line(text, line->spans.data[i]);
  Source *out = ARENA_NEW(arena, Source);
  *out = (Source){source->path, text, source->n};
  return out;
}

static _Noreturn void run_child(Tool *tool, const Source *plan, int messages,
                                int results) {
  tool->plan_text = plan;
  if (dup2(messages, STDERR_FILENO) < 0) _exit(EXIT_machine);
  Priced p;
  int code = tool_price(tool, false, &p);
  Tried tried = {p.price.step, p.peak};
  if (code == EXIT_done &&
      write(results, &tried, sizeof tried) != (ssize_t)sizeof tried)
    code = EXIT_machine;
  fflush(stderr);
  _exit(code);
}

/* "no size follows for axis 'tensor'" of the first error. */
static const char *first_error(Arena *arena, FILE *messages) {
  char line[512];
  rewind(messages);
  while (fgets(line, sizeof line, messages)) {
    const char *error = strstr(line, "error: ");
    if (!error) continue;
    error += strlen("error: ");
    return arena_printf(arena, "%.*s", (int)strcspn(error, "\n"), error);
  }
  return NULL;
}

static bool read_result(int results, Tried *out) {
  ssize_t n;
  do n = read(results, out, sizeof *out);
  while (n < 0 && errno == EINTR);
  return n == (ssize_t)sizeof *out;
}

/* A process that prices the plan without a line. */
typedef struct Trial {
  pid_t child;
  int results; /* where it writes a Tried */
  FILE *messages;
  PlanLine *line;
} Trial;

static bool begin_trial(Tool *tool, const Source *source, PlanLine *line,
                        Trial *out) {
  int ends[2];
  *out = (Trial){.line = line, .messages = tmpfile()};
  if (!out->messages) return false;
  if (pipe(ends) < 0) {
    fclose(out->messages);
    return false;
  }
  const Source *plan = plan_without(tool->arena, source, line);
  fflush(stdout);
  fflush(stderr);
  out->child = fork();
  if (out->child == 0) run_child(tool, plan, fileno(out->messages), ends[1]);
  close(ends[1]);
  out->results = ends[0];
  if (out->child > 0) return true;
  close(ends[0]);
  fclose(out->messages);
  return false;
}

static void end_trial(Tool *tool, const Priced *p, const Trial *trial) {
  PlanLine *line = trial->line;
  Tried tried;
  int status = 0;
  bool has_result = read_result(trial->results, &tried);
  while (waitpid(trial->child, &status, 0) < 0 && errno == EINTR) continue;
  line->is_tried = true;
  line->is_legal =
      has_result && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_done;
  if (line->is_legal) {
    line->step_without = tried.step;
    line->peak_without = tried.peak;
    line->step_change = tried.step - p->price.step;
    line->peak_change = tried.peak - p->peak;
  } else {
    line->why = first_error(tool->arena, trial->messages);
    if (!line->why) line->why = "dnnc failed without this line";
  }
  close(trial->results);
  fclose(trial->messages);
}

/* On a terminal only. */
static void show_progress(int done, int of) {
  if (of == 0 || !isatty(STDERR_FILENO)) return;
  if (done < of)
    fprintf(stderr, "\rpricing the plan without a line: %d of %d", done + 1,
            of);
  else
    fprintf(stderr, "\r%50s\r", "");
  fflush(stderr);
}

/* The first lines, as many at a time as there are processors. */
static void try_lines(Tool *tool, const Priced *p, const Source *source,
                      PlanLine *lines, int n) {
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  int at_a_time = processors < 1                ? 1
                  : processors > MOST_AT_A_TIME ? MOST_AT_A_TIME
                                                : (int)processors;
  Trial trials[MOST_AT_A_TIME];
  bool is_begun[MOST_AT_A_TIME];
  for (int i = 0; i < n + at_a_time; i++) {
    int slot = i % at_a_time;
    if (i >= at_a_time && i - at_a_time < n) {
      show_progress(i - at_a_time, n);
      if (is_begun[slot]) end_trial(tool, p, &trials[slot]);
    }
    if (i < n)
      is_begun[slot] = begin_trial(tool, source, &lines[i], &trials[slot]);
  }
  show_progress(n, n);
}

Ps plan_lines_rest(const PlanLines *lines, Ps step) {
  for (int i = 0; i < lines->lines.n; i++) step -= lines->lines.data[i].exposed;
  return step;
}

PlanLines plan_lines_of(Tool *tool, const Priced *p) {
  PlanLines out = {0};
  const Source *source = NULL;
  const Ast *ast = tool_parse_plan(tool, tool->options.plan, &source);
  if (!ast || p->n_classes == 0) return out;
  add_lines(tool->arena, ast, &out);
  int n = out.lines.n;
  vec_push(tool->arena, &out.lines,
           (PlanLine){.text = "what no line of the plan says"});
  add_costs(tool, p, &out);
  qsort(out.lines.data, (size_t)n, sizeof *out.lines.data, compare_lines);
  int64_t most =
      tool->options.lines < 0 ? MOST_TRIED_LINES : tool->options.lines;
  try_lines(tool, p, source, out.lines.data, n < most ? n : (int)most);
  return out;
}
