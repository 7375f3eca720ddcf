/*
 * plan_maker.h -- declares what the parts of the generator of plans share: the
 * plan so far, and what its lines can be about.
 */
#ifndef TESTS_RANDOM_PLAN_MAKER_H
#define TESTS_RANDOM_PLAN_MAKER_H

#include "tests/random/plans.h"

enum { MOST_PLAN_AXES = 3 };

/* Mesh axes, by number. */
typedef unsigned PlanAxes;

typedef struct PlanDim {
  Name name;
  int64_t size; /* greatest common divisor of all dims of the name; 0: no line
                   may shard it */
} PlanDim;

/* A value along a dim of which windows slide. */
typedef struct PlanWindow {
  int node;
  Name dim;
} PlanWindow;

typedef struct PlanMaker {
  Choices *choices;
  Arena *arena;
  const PlanSubject *subject;
  const Graph *graph;
  Text *out;
  int *lines; /* or NULL */
  /* The mesh and the settings. */
  int n_axes, sizes[MOST_PLAN_AXES], ranks, microbatches, zero;
  int n_stages;           /* ranks are those of one stage */
  int n_chunks;           /* stages of a rank */
  VEC(const char *) cuts; /* paths after which a stage may end */
  bool is_uneven;    /* lines may shard dims that their axes do not divide */
  PlanAxes reserved; /* no other line takes these: of attention, of a partial
                        sum */
  /* The batch. */
  bool joins_samples;     /* an operator of the net reads several samples */
  bool needs_all_samples; /* ... and has no way to do so on a part of them */
  bool is_batch_open;     /* no line says where it is */
  bool is_batch_uneven;
  const char *batch_text; /* its axes, as text */
  PlanAxes batch_axes;
  /* Subjects of lines: node numbers, but for dims and paths. */
  VEC(PlanDim) dims;
  VEC(int) parameters, values;
  VEC(int) products; /* operators that lines can say how to compute */
  VEC(int) sums;     /* values that only linear operators read */
  VEC(PlanWindow) windows;
  VEC(const char *) saved; /* paths of lines `remat` and `keep` so far */
} PlanMaker;

#define CHOOSE(m, n) choose((m)->choices, n)

/* ---- plan_graph.c ---- */

/* Fills in what lines can be about. */
void look_at_graph(PlanMaker *m);
/* Dims that a plan can name. */
bool is_plan_name(const char *text);
bool has_plan_dim(const Type *type, const char *dim);
/* The path of a node, as a plan writes it. */
const char *plan_path(const PlanMaker *m, int id);
PlanDim *find_plan_dim(PlanMaker *m, const char *name); /* or NULL */

/* ---- plans.c ---- */

void count_line(PlanMaker *m, PlanLine line);
/* One in 100 lines may be one that cannot hold. */
bool may_be_odd(PlanMaker *m);
/* Neighbouring axes without those of `used` and reserved ones, outermost first,
 * as "b" or "(b, c)", which join `used`; NULL: there are none.  Sets the number
 * of shards. */
const char *pick_axes(PlanMaker *m, PlanAxes *used, int64_t *out_shards);
/* Returns whether so many shards, of these axes, may be made of a dim. */
bool may_shard(PlanMaker *m, int64_t size, int64_t shards, const char *axes);

/* ---- plan_places.c: lines about names, values and operators, each of which
 * may decide to write nothing ---- */

/* The operator of a path: "block.attn.dot[0]" is block.attn!dot[0]. */
const char *plan_operator(Arena *arena, const char *path);
/* The dims that a product works on: those of its operands, each once, the one
 * that it adds up included.  Returns their number, at most 2 MAX_RANK. */
int plan_product_dims(const Graph *graph, int id, const Dim **out);
void make_name_line(PlanMaker *m);
void make_parameter_line(PlanMaker *m);
void make_value_line(PlanMaker *m);
void make_space_line(PlanMaker *m);
void make_operator_line(PlanMaker *m);
void make_partial_line(PlanMaker *m);
void make_gradient_line(PlanMaker *m);
void make_state_line(PlanMaker *m);
void make_replicate_line(PlanMaker *m);
void make_keep_line(PlanMaker *m);
void make_remat_line(PlanMaker *m);

#endif
