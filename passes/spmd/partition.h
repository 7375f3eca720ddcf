/*
 * partition.h -- declares the parts of the pass `partition`, which follow each
 * other: placing a node, resharding its operands, scans, and pins.
 */
#ifndef PASSES_SPMD_PARTITION_H
#define PASSES_SPMD_PARTITION_H

#include "ir/reshard.h"
#include "passes/rewrite.h"

/* How ZeRO spreads a parameter. */
typedef struct ZeroShard ZeroShard;

/* The strategies of operators so far. */
typedef struct StrategyMemo StrategyMemo;

/* A constraint as a run of the pass followed it. */
typedef struct PinNote {
  const Node *node;        /* of the old graph */
  const Type *have, *want; /* of its operand, of its result */
} PinNote;

/* A value as a run of the pass brought it from one placement to another, by
 * the table of ir/reshard.h. */
typedef struct ReshardNote {
  const Type *from, *to;
  DType reduced; /* the dtype in which a sum is sent */
} ReshardNote;

/* How a run treats the constraints of a graph, and what it notes of them and
 * of the placements that it chose. */
typedef struct PinTrial {
  bool completes;  /* values around them get the placements that they imply */
  bool is_changed; /* by that, it is found */
  Span left_out;   /* the pin written here is not followed, or SPAN_NONE: */
  const Map *instead; /* path -> Type that its values have in place of it; NULL:
                         they stay as they are computed */
  Map *notes; /* node -> PinNote, in the arena of the module; NULL: none */
  VEC(ReshardNote) reshards; /* in the same arena, without slices */
} PinTrial;

/* The bytes that a rank sends in a training step. */
typedef struct PlacementCost {
  int64_t bytes;
  int64_t value_bytes; /* of the forward pass and of gradients of values */
} PlacementCost;

typedef struct Partition {
  Rewrite rewrite;
  PassContext *ctx;
  const Plan *plan;
  const Mesh *mesh;
  Resharding *table; /* of the steps that can be appended */
  Map *reduced;    /* value of the new graph -> node of its reduced value, plus
                      1 */
  Map *resharded;  /* text of a value and a placement -> node, plus 1 */
  Map *zero;       /* path of a parameter -> ZeroShard */
  Map *parameters; /* path -> Type with its placement */
  Map *warned;     /* name and size of a dim with padding */
  StrategyMemo *strategies;
  Map *by_heads; /* result of attention -> node that made it by heads, plus 1 */
  bool has_heads; /* some attention is computed by heads */
  /* By node of the old graph: readers[first_reader[id] .. first_reader[id + 1])
   * are the nodes that read its results. */
  int *first_reader, *readers;
  const Name *shown;  /* by input of a scan's body: the path of the parameter
                         that  it shows, or NULL; NULL: the graph is no body */
  AxisList **targets; /* by node of the old graph, by dim of its result; NULL:
                         nothing is completed, or the node has none */
  PinTrial *trial;
} Partition;

/* ---- partition_pass.c ---- */

/* What `partition` makes of a graph, without a warning of costly pins.  The
 * trial, empty before, says how it treated constraints. */
const Graph *partition_decide(PassContext *ctx, const Graph *graph,
                              PinTrial *trial);

/* ---- partition.c ---- */

/* The graph of a rank.  The plan must have ranks or micro-batches; what cannot
 * be is reported, and the result is then the graph as it was. */
Graph *partition_graph(PassContext *ctx, const Graph *graph, PinTrial *trial);

/* Places node `id` of the old graph: reshards its operands, appends it with the
 * placements that follow, and records its results. */
void place_node(Partition *p, int id);

/* ---- place_call.c ---- */

/* Appends an operator that takes part in node `id`, with its operands resharded
 * as its rule wants them.  `logical`: its result types. */
Value place_call(Partition *p, int id, Op op, const Attrs *attrs,
                 const Value *inputs, int n_inputs, const Type *const *logical,
                 int n_results);

/* The same where the operands are as the rule wants them already; `results`:
 * the types that follow. */
Value append_placed(Partition *p, int id, Op op, const Attrs *attrs,
                    Value *inputs, int n_inputs, const Type *const *logical,
                    const Type *const *results, int n_results);

/* place_call of an operator with one result, whose logical type is inferred. */
Value place_inferred(Partition *p, int id, Op op, const Value *inputs,
                     int n_inputs, const Attrs *attrs);

/* Reshards the operands of node `id` so that the axes that its attribute lists,
 * and no others, shard its dim; padding becomes zeros.  Partial sums over other
 * axes stay as they are. */
void place_on_axes(Partition *p, int id, Value *inputs);

/* ---- completion.c ---- */

/* Finds the placements that constraints imply for the values around them. */
void find_targets(Partition *p);
/* The value of node `id`, sharded along the dims that only its target shards.
 */
Value place_by_target(Partition *p, int id, Value value);

/* ---- partition_trials.c ---- */

/* The cost of a partitioned graph, before or after `remat`. */
PlacementCost placement_cost(const PassContext *ctx, const Graph *placed,
                             bool with_remat);
/* The graph in the placements of the trial; NULL: they are not possible.
 * Reports nothing; `out_is_quiet`: there was nothing to report. */
const Graph *partition_quietly(const PassContext *ctx, const Graph *graph,
                               PinTrial *trial, bool *out_is_quiet);
/* The cost of the graph in the placements of the trial, which gets its notes;
 * false: they are not possible.  Reports nothing. */
bool try_placement(const PassContext *ctx, const Graph *graph, PinTrial *trial,
                   bool with_remat, PlacementCost *out_cost);

/* Decides whether values are completed, with the constraints as the trial has
 * them: sets `completes`.  The partitioned graph, where it is known then and
 * there was nothing to report, and the trial has its notes; else NULL. */
const Graph *choose_completion(const PassContext *ctx, const Graph *graph,
                               PinTrial *trial);

/* ---- costly_pins.c ---- */

/* Warns of each pin of values that another one of them would save bytes.
 * `placed`: the partitioned graph, which `trial` made. */
void warn_of_costly_pins(PassContext *ctx, const Graph *graph,
                         const Graph *placed, const PinTrial *trial);

/* ---- partition_scan.c ---- */

/* Places the body like a graph and iterates the carry shardings to a fixed
 * point. Partial values that an iteration reads are reduced in the body; values
 * that are only stacked or added up are reduced after the loop. */
void place_scan(Partition *p, int id);

/* ---- scan_hoist.c ---- */

/* The body of a scan, which `inner` has placed, without collectives that are
 * the same in all iterations, which are appended to the new graph, but for
 * those of parameters that a line `remat` names.  `inputs`: the operands of the
 * scan, replaced by those of the new body. */
Graph *hoist_collectives(Partition *p, const Partition *inner, Graph *body,
                         Value **inputs);

/* ---- placement.c ---- */

Type *type_copy(Arena *arena, const Type *type);
/* The axes of a line, or of none (NULL), but for the sequential one. */
AxisList rank_axes(const Partition *p, const PlanShard *shard);
/* The rank axes that the line of the batch dim names. */
AxisSet batch_axes(const Partition *p);
/* The value in another dtype, placed as it is. */
Value cast_placed(Partition *p, Value value, DType dtype);
/* The dtype in which a partial value is reduced between ranks. */
DType reduced_dtype(const Partition *p, Value value);
/* A partial value in this dtype; what is reduced is cast back by the caller. */
Value cast_summand(Partition *p, Value value);
/* Appends `op` over the axes over which the value is partial. */
Value reduce_over(Partition *p, Value value, AxisSet axes, Op op);
/* Appends `op`, which changes the shards of the value along dim `d`. */
Value change_shards(Partition *p, Op op, Value value, int d, AxisList split,
                    AxisList axes);
void axis_list_attr(const Partition *p, Attrs *attrs, AxisList list);
/* Reports at the statement that needs the dim replicated, or, where that is the
 * update of a persistent buffer, at the pin. */
void report_uneven(Partition *p, const Dim *dim, int64_t shards, Span place);
Diag *report_unsupported_shard(Partition *p, Name path, const Dim *dim,
                               Span place, bool is_kept);

/* A strategy's operand with the axes of micro-batches, which strategies leave
 * out: they stay where they are.  `partial`: what the rule of the node lets be
 * partial. */
const Type *with_microbatches(const Partition *p, const Type *have,
                              const Type *want, AxisSet partial);
/* Whether the operator can be written for a range of indices. */
bool range_is_supported(Op op);

/* ---- resharding.c ---- */

/* Reduces a partial value; the reduction gets path and phase of the value. */
Value reduce_partial(Partition *p, Value value);
/* Collects the micro-batches of a value that they shard, except along dims that
 * `want`, if not NULL, shards over them too. */
Value collect_microbatches(Partition *p, Value value, const Type *want);
/* The value in the placement of `want`, for node `id` of the old graph, whose
 * place a message names. */
Value reshard(Partition *p, Value value, const Type *want, int id);
/* The value of the new graph that shows another one in this placement, or
 * VALUE_NONE: there is none so far. */
Value find_reshard(Partition *p, Value value, const Type *placed);
/* Later readers of the value find that `now` shows it in its placement. */
void remember_reshard(Partition *p, Value value, Value now);
/* The value depends on no replicated input, and on few nodes, so that a rank
 * can compute its shard alone. */
bool is_computed(const Graph *graph, Value value);

/* ---- resharding_steps.c ---- */

/* As reshard_steps, of steps that can be emitted; where there is no such chain,
 * one through the shards that both placements have. */
int reshard_chain(Partition *p, const Type *from, const Type *to,
                  ReshardStep *out);
/* Why there is no chain, as a part of a message. */
const char *reshard_reason(Partition *p, const Type *from, const Type *to);
/* The first of two dims, d and d + 1, has `n` elements and the shards that dim
 * d had, the second as many as a shard with its padding; merge_shards undoes
 * it, and `size` elements are left. */
Value split_shards(Partition *p, Value value, int d, int64_t n);
Value merge_shards(Partition *p, Value value, int d, int64_t size);
/* Moves dim `from` to place `to` of the storage order. */
Value transpose_dim(Partition *p, Value value, int from, int to);
/* Each rank takes its shard: `axes` continue those of the dim to `split`. */
Value shard_dim(Partition *p, Value value, int d, AxisList split,
                AxisList axes);
Name shards_name(const Partition *p, const Type *type, Name dim);
Value reshard_emit(Partition *p, Value value, const ReshardStep *steps, int n);

/* ---- padding.c ---- */

/* Some shards of the dim have padding. */
bool dim_is_uneven(const Partition *p, const Dim *dim);
/* Each shard of `larger` consists of complete shards of `smaller`, whose axes
 * continue those of `larger`. */
bool shards_are_aligned(const Partition *p, const Dim *larger,
                        const Dim *smaller);
/* Replaces padding of the operands by what does not change a result that mixes
 * the elements of a dim. */
void mask_operands(Partition *p, Op op, const Attrs *attrs, Value *inputs,
                   int n_inputs, const Type *const *results, int n_results);
/* The value with zeros in the padding of this dim. */
Value mask_padding(Partition *p, Value value, Name dim);
/* A replicated dim gets `size` elements: zeros after those that it has, or the
 * first ones of them. */
Value append_padding(Partition *p, Value value, int d, int64_t size);
Value drop_padding(Partition *p, Value value, int d, int64_t size);

/* ---- zero.c ---- */

/* A parameter, or its average, in the placement that it has without ZeRO. */
void zero_add_parameter(Partition *p, Name path, const Type *type);
/* The placement of an input that belongs to the parameter of this path. */
const Type *zero_input(const Partition *p, Role role, Name path,
                       const Type *type);
/* The path of the parameter that a node of the update is about, or NULL. */
Name update_path(Names *names, Name node_path);
/* The placement to which a partial gradient is reduced for a node of the
 * update, or NULL: ZeRO does not shard it. */
const Type *zero_gradient(const Partition *p, Name node_path, const Type *type);
/* The axes over which ZeRO may shard parameters. */
AxisSet zero_all_axes(const Partition *p);
/* The axes over which ZeRO shards a parameter, which readers gather. */
AxisSet zero_axes_of(const Partition *p, Name path);

/* ---- update_lines.c ---- */

/* The line about the path of an input, or NULL; of optimizer state, whose
 * parameter has this path, the line about it before one about the parameter. */
const PlanPlacement *find_input_line(const Partition *p,
                                     const GraphInput *input, Name path);
/* The line about the optimizer state of a parameter, or NULL. */
const PlanPlacement *find_state_line(const Partition *p, Name parameter);
/* The placement to which a gradient, partial or not, is brought for a node of
 * the update, or NULL: neither a line nor ZeRO shards it. */
const Type *updating_gradient(const Partition *p, Name node_path,
                              const Type *type);

/* ---- full_batch.c ---- */

/* The graph, or one in which sums over micro-batches that follow from data
 * alone are computed before the micro-batches that read them. */
Graph *sum_over_full_batch(PassContext *ctx, Graph *graph);
/* The graph, or one in which what is the same for all micro-batches, but lies
 * between nodes that run for each, runs for each as well. */
Graph *repeat_between_microbatches(PassContext *ctx, Graph *graph);

/* ---- partial_values.c ---- */

void index_readers(Partition *p);
/* Reduces and scatters a partial value for all its readers if one of them, not
 * only node `id`, has an operand that is sharded over its axes. */
void settle_partial(Partition *p, Value old, int id);
/* Makes a broadcast term of a partial sum a partial sum as well; what moves a
 * sum that is reduced already moves the reduced one. */
void keep_partial(Partition *p, int id, Value *inputs);

/* ---- attention_heads.c ---- */

/* Where the plan says so: places attention or its gradient, whose operands are
 * these, with heads in shards in place of the sequence; false: not this one. */
bool place_by_heads(Partition *p, int id, Value *inputs);

/* ---- attention_lines.c ---- */

/* Into how many shards a line about its name divides a dim other than that of
 * the batch; else 1. */
int64_t sequence_shards(const Plan *plan, Name dim);
/* No attention is computed as the plan says: says why, at its line.  `missed`,
 * or NULL: an attention of the graph. */
void report_no_attention(PassContext *ctx, const Graph *graph,
                         const Node *missed);

/* ---- strategy_choice.c ---- */

/* The path of the parameter that a value of the new graph shows: it reaches its
 * readers through casts, views, copies, and as an argument of scans; NULL: the
 * value is computed. */
Name shown_parameter(const Partition *p, Value value);

/* Whether the rule of node `id` would move shards and a strategy is better;
 * then `wanted` has the operands of the best, and *out_positions the axes over
 * which it works on a range of indices. */
bool choose_strategy(Partition *p, int id, const Value *inputs,
                     const Type *const *have, const Type **wanted,
                     AxisSet *out_positions);

/* ---- strategy_memo.c ---- */

/* All that a choice reads of an operator. */
typedef struct StrategyQuestion {
  const Graph *graph; /* logical */
  const Node *node;
  const Type *const *have, *const *rule; /* of the operands */
  /* By operand: a parameter is stored over these axes of ZeRO; -1: it is none.
   */
  const int *zero_axes;
} StrategyQuestion;

typedef struct StrategyAnswer {
  bool is_found;
  AxisSet positions;
  const Type **wanted; /* the operands */
} StrategyAnswer;

StrategyMemo *strategy_memo_create(Arena *arena);
/* Whether an equal question has been answered; the answer then is as it was put
 * in. */
bool strategy_memo_find(StrategyMemo *memo, const StrategyQuestion *question,
                        StrategyAnswer *out);
void strategy_memo_put(StrategyMemo *memo, const StrategyQuestion *question,
                       const StrategyAnswer *answer);

/* ---- operator_lines.c ---- */

/* Whether a line says how node `id` computes; then, as in choose_strategy,
 * `wanted` and *out_positions follow from it.  Reports what cannot be. */
bool place_by_operator_line(Partition *p, int id, const Type *const *have,
                            const Type **wanted, AxisSet *out_positions);
/* Reports lines that no operator of the graph follows. */
void check_operator_lines(Partition *p);

/* ---- index_range.c ---- */

/* Places a look-up of which each rank deals with its own range of indices. */
Value place_by_range(Partition *p, int id, const Value *inputs,
                     AxisSet positions);

/* ---- constraint.c ---- */

/* Both are about one statement. */
bool span_equal(Span a, Span b);
/* The path of the value that a constraint is about, also where it is the one of
 * the gradient. */
Name pinned_path(Names *names, const Node *constraint);
/* The type of an operand in the placement of the constraint `node`, or in the
 * one that a trial has in place of it. */
const Type *constrained_type(const Partition *p, const Node *node,
                             const Type *have);
/* Reshards the operand of a constraint. */
void place_constraint(Partition *p, int id);

/* ---- pins.c ---- */

/* The axes that a line about its name gives a dim; none for the batch dim. */
AxisList plan_line_axes(const Partition *p, const Dim *dim);
/* The axes are those of a line, in its order, and beside them only those of
 * ZeRO and of micro-batches, which lines do not name. */
bool has_line_axes(const Partition *p, AxisList split, AxisList line);
/* Reports a pin `partial` of constraint `id` that cannot hold; false then. */
bool check_partial_pin(Partition *p, int id, const Type *have);
/* Reports the pins about names that do not hold in the new graph. */
void check_named_pins(const Partition *p);

#endif
