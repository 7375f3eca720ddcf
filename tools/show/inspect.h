/*
 * inspect.h -- declares an Inspection: what a plan costs on a cluster, by term,
 * path, kind and name.  The tables, the JSON object and the page of `dnnc show`
 * all print this one object.
 */
#ifndef TOOLS_SHOW_INSPECT_H
#define TOOLS_SHOW_INSPECT_H

#include "passes/buffers/memory_peak.h"
#include "tools/commands/tool_price.h"
#include "tools/show/stage_calls.h"

/* ---- by_path.c: by path ---- */

enum { MOST_FOLDED = 4 };

/* The time and memory of one path.  Paths that differ only in indices of
 * repeats may share a row, such as "block[0..95].attn.dot[0]". */
typedef struct PathRow {
  Name key; /* "block[*].attn.dot[0]" */
  int n_paths;
  int n_indices; /* indices that are folded */
  int64_t least[MOST_FOLDED], most[MOST_FOLDED];
  Ps parts[N_COST_PARTS], time; /* parts of a step; time is their sum */
  Bytes persistent, at_peak;    /* at_peak: transient, when most is alive */
} PathRow;

typedef struct PathTable {
  Map *index; /* key -> row, plus 1 */
  VEC(PathRow) rows;
} PathTable;

/* Returns the time and memory of every path; with `folds`, repeats become one
 * row. */
PathTable paths_of(Arena *arena, const Priced *priced, bool folds);
/* Returns the row of one path, without figures. */
PathRow paths_fold(Names *names, Arena *arena, const char *path);
/* Finds the iteration of a repeat that a path is in: "block[3].attn.q" is in
 * iteration 3 of block.  Returns false if it is in no repeat. */
bool path_iteration(Names *names, const char *path, Name *out_name,
                    int64_t *out_index);
/* Sorts, the most costly first. */
void paths_sort(PathTable *table);
/* Returns the path of a row, such as "block[0..95].attn.dot[0]". */
const char *path_text(Arena *arena, const PathRow *row);

/* ---- timeline.c: over time ---- */

/* One span, or several that are too short to be drawn. */
typedef struct TimelineBar {
  Ps begin, end;
  int n;
  Phase phase;              /* phase that most of it belongs to */
  const char *first, *last; /* paths */
  Ps parts[N_COST_PARTS];   /* waits: as what is waited for */
} TimelineBar;

typedef struct TimelineLane {
  const char *name;
  VEC(TimelineBar) bars;
} TimelineLane;

/* The lanes of a class between two moments; the first one is the stream. */
typedef struct Timeline {
  const char *title;
  int class;
  Ps begin, end;
  int n_lanes;
  TimelineLane *lanes;
} Timeline;

/* Transient bytes by kind: the moment of a column at which most is alive. */
typedef struct MemoryMoment {
  Ps time;
  Bytes bytes[N_PEAK_KINDS];
} MemoryMoment;

enum { TIMELINE_COLUMNS = 500 };

/* Returns the step of each class, then one block of the most costly repeat,
 * forward and backward. */
Timeline *timelines_of(Arena *arena, const Priced *priced, int *out_n);
MemoryMoment *memory_over_time(Arena *arena, const Priced *priced, int *out_n);

/* ---- plan_lines.c: what a line of the plan costs and buys ---- */

typedef struct PlanLine {
  /* Places of the line; none means no line, as the batch takes open axes. */
  VEC(Span)
  spans;
  const char *text;
  /* Transfers of a step for which this line is the reason. */
  int64_t n_transfers;
  Bytes sent;       /* bytes that they send */
  Ps busy, exposed; /* time in queues; time that is waited for */
  bool is_tried, is_legal;
  const char *why; /* first message, if it is not legal */
  Ps step_without; /* the step and the arena if the line is left out */
  Bytes peak_without;
  Ps step_change; /* growth of step and peak if the line is left out */
  Bytes peak_change;
} PlanLine;

typedef struct PlanLines {
  VEC(PlanLine) lines; /* the most costly first */
} PlanLines;

enum { MOST_TRIED_LINES = 10 };

/* Prices the plan without each of its most costly lines, as many as --lines
 * says.  That takes long for a large model, so it says on a terminal how far it
 * is. */
PlanLines plan_lines_of(Tool *tool, const Priced *priced);
/* Appends the rows of these lines, without figures (plan_line_rows.c). */
void plan_lines_add(Arena *arena, const Span *spans, int n, PlanLines *out);
/* Returns the time of the step beside the waits of its lines. */
Ps plan_lines_rest(const PlanLines *lines, Ps step);

/* ---- inspect.c ---- */

typedef struct KindRow {
  const char *name, *words;
  Bytes at_peak, most; /* persistent: equal */
  bool is_persistent;
} KindRow;

/* The number of values of a step that have a dim of this name sharded so. */
typedef struct NameRow {
  Name dim;
  AxisList axes;
  int n_values;
} NameRow;

/* Parameters of one type whose paths differ in indices of repeats only. */
typedef struct ParameterRow {
  PathRow paths;
  const Type *type;
  Bytes bytes; /* bytes of one, on a rank */
} ParameterRow;

typedef struct SearchReport SearchReport; /* search_report.h */

typedef struct Inspection {
  const Priced *priced;
  const SearchReport *search; /* how the plan was found; or NULL */
  const char *plan;           /* the file */
  double flops, peak_flops; /* FLOPs of a step; those of all ranks, a second */
  double mfu;               /* flops / (step * peak_flops) */
  /* Samples and items of a step; items are tokens where it has them. */
  int64_t samples, items;
  bool has_tokens;
  VEC(KindRow) kinds;
  MemoryPeak peak;
  /* Kinds at the peak, holes, and what another entry point needs more than the
   * training step, are the arena. */
  Bytes holes, others;
  PathTable paths;  /* folded */
  PathTable single; /* each path */
  VEC(NameRow) names;
  VEC(ParameterRow) parameters;
  int n_timelines;
  Timeline *timelines;
  int n_calls; /* classes of ranks; none without stages */
  CallBars *calls;
  int n_moments;
  MemoryMoment *moments;
  PlanLines lines;
} Inspection;

/* Returns an exit code; mistakes are printed. */
int inspect(Tool *tool, const Priced *priced, Inspection *out);

/* Computes FLOPs, MFU, samples and items of a step, from `priced`.  Returns
 * false if a mistake was printed. */
bool inspect_rates(Inspection *out);
void inspect_print_rates(Text *out, const Inspection *inspection);
/* Prints fields of an object, each after a comma. */
void inspect_print_rates_json(Text *out, const Inspection *inspection);
/* Returns the step of the class that is looked at. */
Ps inspect_step(const Inspection *inspection);
/* Returns what MFU is here, in words. */
const char *inspect_mfu_formula(void);
/* Returns a share from 0 to 1. */
double inspect_share(Ps part, Ps of);
/* Returns axes as "data, tensor". */
const char *inspect_axes(Arena *arena, const Mesh *mesh, AxisList axes);
/* Inspects memory alone: kinds, peak and holes. */
Inspection inspect_memory(Arena *arena, const Priced *priced);
/* Returns a time as "123.456 ms", with "or more" behind the longest step of the
 * simulator; the next ones give "+123.456 ms" and "-1.25
 * MB". */
const char *inspect_ms(Arena *arena, Ps time);
const char *inspect_signed_ms(Arena *arena, Ps time);
const char *inspect_signed_bytes(Arena *arena, Bytes bytes);

/* ---- inspect_text.c, inspect_json.c, page.c ---- */

void inspect_print(Text *out, const Inspection *inspection);
/* Prints the fields of an object, without its braces. */
void inspect_print_json(Text *out, const Inspection *inspection);
/* Prints one file of HTML with drawings, which needs nothing else. */
void page_print(Text *out, const Inspection *inspection);

/* ---- dot_steps.c ---- */

/* Prints the step as a graph for Graphviz. */
void dot_print(Text *out, const Inspection *inspection);

#endif
