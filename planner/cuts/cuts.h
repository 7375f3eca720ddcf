/*
 * cuts.h -- declares PipeDream's search for stages (Narayanan et al., SOSP
 * 2019): where a graph is cut, and how many machines share the minibatches of a
 * stage.
 *
 * A stage ends where a set of nodes ends that holds all inputs of its nodes: a
 * state.  A stage between two states does the work of the difference.  Each of
 * its m replicas takes every m-th minibatch, so a stage costs per minibatch
 *
 *     ( T + f (m - 1) / m W / B ) / m      T: seconds, W: bytes of parameters
 *
 * and each cut 2 out / (B m) with the replicas m of the stage beside it.  The
 * slowest stage or cut is minimised.  Levels of machines: a server with all its
 * devices is a machine of the next level, and T is the minimum inside it.
 */
#ifndef PLANNER_CUTS_H
#define PLANNER_CUTS_H

#include "support/base.h"

/* Costs of a node for one minibatch on one machine. */
typedef struct CutNode {
  int64_t forward_ns, backward_ns;
  int64_t activation_bytes, parameter_bytes;
} CutNode;

/* A value goes from one node to another: from < to. */
typedef struct CutEdge {
  int from, to;
} CutEdge;

typedef struct CutGraph {
  int n_nodes, n_edges;
  const CutNode *nodes;
  const CutEdge *edges;
} CutGraph;

/* ---- states.c ---- */

/* Sums over the nodes of a state. */
typedef struct CutState {
  int n_nodes;
  int64_t compute_ns, parameter_bytes;
  int64_t out_bytes; /* activations of nodes with users outside */
} CutState;

/* States 0 (no node) to n - 1 (all nodes); subsets come first. */
typedef struct CutStates {
  int n, n_words;
  const CutState *states;
  const uint64_t *members; /* n_words words of bits a state */
  /* Pieces between single-tensor cuts, those of them whose branches are cut one
   * after the other, and those with a branch that is cut in the order of its
   * nodes.  All 0 where every state is there. */
  int n_pieces, n_by_branch, n_by_node;
} CutStates;

/* Finds all states.  Where there are more than `most`, the states are those
 * that the single-tensor cuts delimit; inside a piece between two of them with
 * too many, branches are cut one after the other.  Returns false where a graph
 * has more nodes than that, or none. */
bool cut_states(Arena *arena, const CutGraph *graph, int most, CutStates *out);
bool cut_state_has(const CutStates *states, int state, int node);
/* Returns whether every node of `inner` is in `outer`. */
bool cut_state_within(const CutStates *states, int inner, int outer);
/* Returns whether a node of the state has a user outside of it. */
bool cut_state_sends(const CutGraph *graph, const CutStates *states, int state,
                     int node);

/* ---- solve.c ---- */

/* The sum of gradients: PipeDream's code adds 4 (m - 1) / m W / B to the time
 * of the stage; a ring takes half of that, which is added or hidden (the larger
 * of both counts, as in the paper). */
typedef enum CutSync { CUT_sum4, CUT_sum2, CUT_max } CutSync;

typedef struct CutLevel {
  int machines;
  double bandwidth; /* bytes a second between two machines of this level */
} CutLevel;

enum {
  CUT_MOST_MACHINES = 1024, /* of one level */
  CUT_MOST_STATES = 20000,
  CUT_MOST_STATES_LEVELS = 1000, /* with several levels */
};

typedef struct CutStage CutStage;
struct CutStage {
  int begin, end; /* states */
  int replicas;
  /* Seconds a minibatch, the replicas' share already taken. */
  double compute_s, sync_s;
  /* A level's first stage in a machine is not charged for what it sends: the
   * second is, for what it receives. */
  double receive_s, send_s;
  double cost_s; /* the stage or its slower cut */
  int n_inner;   /* stages inside one replica; 0 at the first level */
  const CutStage *inner;
};

typedef struct CutPlan {
  double seconds; /* a minibatch */
  double one_machine_s, data_parallel_s;
  int n_stages;
  const CutStage *stages;
} CutPlan;

/* Returns how many states a search over these levels has room for: several
 * levels have a number for each pair of states and each machine. */
int cut_most_states(const CutLevel *levels, int n_levels);

/* Finds a plan of least cost on all machines; levels[0] is the innermost.  Of
 * equal ones it takes the fewest stages, then the earliest of the last cuts,
 * then the fewest replicas of the last stage. */
CutPlan cut_solve(Arena *arena, const CutStates *states, const CutLevel *levels,
                  int n_levels, CutSync sync);

#endif
