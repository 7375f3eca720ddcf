/*
 * graph_paths.h -- declares how the paths of a plan are found in a graph, and
 * which text means a path (docs/language.md, section 6).
 */
#ifndef IR_PLAN_GRAPH_PATHS_H
#define IR_PLAN_GRAPH_PATHS_H

#include "ir/plan/plan.h"

/* A path that differs from that of its node: of an operator whose value was
 * assigned, or of a value that another operator made. */
typedef struct PathAlias {
  Name path, node_path;
  bool is_value;
} PathAlias;

typedef VEC(Name) PathList;

typedef struct PathRange {
  int64_t first, last;
  Span span; /* no source: all, or of a text that nobody wrote */
} PathRange;

typedef struct PathPart { /* name[range][range] */
  const char *name;
  size_t n_name;
  VEC(PathRange) ranges; /* outermost first; further ones mean all */
} PathPart;

enum { MOST_PATH_PARTS = 72 };

/* A path as a plan has it: "block[2..5].attn". */
typedef struct PathPattern {
  int n;
  PathPart parts[MOST_PATH_PARTS];
  bool is_operator; /* PATH!NAME */
} PathPattern;

/* All paths of a graph, for plans. */
typedef struct PlanPaths PlanPaths;
PlanPaths *plan_paths_create(Module *module, const Graph *graph,
                             const PathAlias *aliases, int n_aliases);
/* Returns the graph that they are of. */
const Graph *plan_paths_graph(const PlanPaths *paths);
/* Returns the i-th path of all.  Returns NULL if there are no more. */
const char *plan_paths_at(const PlanPaths *paths, int i);
/* Reads a path such as "cut.x[3]", whose words may be those of a plan.  Returns
 * false if it is none.  `span`: where it stands. */
bool path_pattern_parse(Arena *arena, PathPattern *out, const char *text,
                        Span span);
/* Appends all that the pattern means.  Returns false if nothing. */
bool plan_paths_find(const PlanPaths *paths, const PathPattern *pattern,
                     PathList *out);
/* Appends all that a text means.  Returns false if it means nothing or is no
 * path. */
bool plan_paths_find_text(const PlanPaths *paths, const char *text,
                          PathList *out);
/* Returns the largest index that a path has where the pattern has range `k` of
 * part `i`, all before it being as the pattern says.  Returns -1 if none has
 * one there. */
int64_t plan_paths_last_index(const PlanPaths *paths,
                              const PathPattern *pattern, int i, int k);
/* Returns whether an operator without a name of its own, whose path means
 * something else: only '!' reaches it. */
bool plan_paths_is_hidden(const PlanPaths *paths, Name node_path);
/* Returns the n-th path beside its own that a node has.  Returns NULL if there
 * are no more. */
const char *plan_paths_other(const PlanPaths *paths, Name node_path, int n);

typedef struct PlanNode {
  const Graph *graph;
  const Node *node;
  Name path; /* an input: what it is of */
} PlanNode;
typedef VEC(PlanNode) PlanNodes;
/* Returns all that can be placed, in program order, what scans compute
 * included. */
const PlanNodes *plan_paths_nodes(const PlanPaths *paths);
/* Returns the nodes of this path. */
const PlanNodes *plan_paths_nodes_of(const PlanPaths *paths, Name path);

/* ---- saved_paths.c ---- */

/* Facts of a graph that lines `remat` and `keep` need. */
typedef struct SavedPathsIndex {
  Map *inputs;  /* their paths; NULL until a line needs them, as is */
  Map *results; /* number of names + 1 -> the paths that leave their layers */
} SavedPathsIndex;
/* Returns the index that belongs to the paths, of their module and graph. */
SavedPathsIndex *plan_paths_saved_index(const PlanPaths *paths,
                                        Module **out_module,
                                        const Graph **out_graph);

/* The paths that lines `remat` and `keep` mean. */
typedef struct SavedPaths {
  PathList values;   /* forward values */
  PathList inputs;   /* parameters, which count where ranks gather them */
  bool names_values; /* a pattern means forward values, all of which may be
                        left out */
} SavedPaths;
/* Appends all that such a line means by this pattern.  Returns false if the
 * pattern means nothing at all. */
bool plan_paths_saved(const PlanPaths *paths, const PathPattern *pattern,
                      PinSays says, SavedPaths *out);

/* ---- path_tree.c ---- */

typedef struct PathTree PathTree;

typedef struct PathMatch {
  int number;    /* number of the path */
  bool is_exact; /* the path ends with the pattern, else it goes on below it */
} PathMatch;
typedef VEC(PathMatch) PathMatches;

PathTree *path_tree_create(Arena *arena);
void path_tree_add(Module *module, PathTree *tree, const char *path,
                   int number);
/* Returns all paths that the pattern matches, by number. */
PathMatches path_tree_find(Module *module, const PathTree *tree,
                           const PathPattern *pattern);
/* Returns the largest index as plan_paths_last_index does. */
int64_t path_tree_last_index(Module *module, const PathTree *tree,
                             const PathPattern *pattern, int i, int k);

/* ---- plan_text.c ---- */

/* Makes the path lines of the plan as it is printed (docs/plan.md, section 11):
 * what differs from the lines of names, folded.  Their text is in the module's
 * arena. */
void plan_make_lines(Module *module, const PlanPaths *paths, Plan *plan);
/* Finds the axes that the lines of a tensor, by dim and of one list, give dim
 * `d`, but for those taken by another dim.  Returns their number. */
int plan_lines_axes(const PlanShard *const *lines, int n, int d, Name *out);

#endif
