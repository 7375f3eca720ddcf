/*
 * prices.h -- declares random legal plans of models and what the tables and the
 * program say that they cost.
 */
#ifndef TESTS_PRICES_PRICES_H
#define TESTS_PRICES_PRICES_H

#include "driver/driver.h"
#include "planner/tables.h"
#include "tests/random/plans.h"

/* A model of models/ in small. */
typedef struct PricedModel {
  const char *file;
  const char *batch;                  /* the dim of samples */
  const char *sizes;                  /* "NAME=VALUE NAME=VALUE" */
  const char *queries, *keys, *heads; /* of PlanSubject; NULL */
} PricedModel;

extern const PricedModel priced_models[];
extern const int n_priced_models;

/* A plan of a model, and how many samples its batch then has. */
typedef struct PricedPlan {
  const PricedModel *model;
  const char *text, *target;
  int64_t samples;
  int lines[N_LINES];
  int n_axes;
} PricedPlan;

/* Asked of a plan. */
typedef struct PlanKind {
  bool has_axes;  /* two or more */
  bool has_zero;  /* ZeRO at some level */
  bool has_lines; /* about operators */
} PlanKind;

/* The number of a plan says what it must have: every other two axes, every
 * other a line about an operator, every fourth ZeRO. */
PlanKind plan_kind(int64_t number);
/* The `attempt`-th random plan of the model with this number, in `arena`. */
PricedPlan priced_plan(Arena *arena, const PricedModel *model, uint64_t seed,
                       int64_t number, int attempt);

/* How the model is compiled, without the plan. */
void priced_options(Arena *arena, const PricedPlan *plan,
                    CompileOptions *options);

/* ---- edge_check.c ---- */

typedef enum EdgeAnswer {
  EDGES_equal,
  EDGES_differ,
  EDGES_not_compared, /* a scan, or a resharding that is no single chain */
} EdgeAnswer;

/* Returns whether the reshardings of the graph that enters `partition`, each
 * priced by its two types, send what the collectives behind it send. */
EdgeAnswer check_edges(PlanTables *tables, const PassContext *ctx,
                       const Graph *planning);

/* ---- the comparison ---- */

typedef enum PriceAnswer {
  PRICE_refused, /* partition does not take the plan */
  PRICE_compared,
  PRICE_faulty, /* only one of the two sides takes it */
} PriceAnswer;

/* How far the tables are from the program. */
typedef struct PriceCheck {
  PriceAnswer answer;
  bool are_products_equal;  /* launches, bytes and picoseconds ... */
  bool is_attention_equal;  /* the same */
  bool are_bytes_equal;     /* sent, by kind of collective and axes */
  bool are_transfers_equal; /* also their number and picoseconds, where no
                               bucket has joined any */
  double kernels;       /* largest relative difference of the bytes that kernels
                           move, over `fused`, `lookup` and `update` together */
  double part;          /* ... in one of the three */
  double launches;      /* relative difference of their number */
  int64_t packed, live; /* bytes of the arena, and those that are live */
  int n_entries;        /* of the tables, and how often they were asked */
  int64_t n_lookups;
  int64_t products, by_strategy; /* of count_strategies */
  EdgeAnswer edges;
} PriceCheck;

/* ---- strategy_check.c ---- */

/* Adds the products of a partitioned graph, and those whose placement is a
 * strategy of their operator. */
void count_strategies(Arena *arena, const Graph *placed, int64_t *products,
                      int64_t *found);

/* ---- price_check.c ---- */

/* Compiles the model under the plan; what differs is appended to `out`, unless
 * that is NULL. */
PriceCheck check_price(const PricedPlan *plan, Text *out);

#endif
