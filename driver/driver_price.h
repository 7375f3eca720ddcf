/*
 * driver_price.h -- declares a compiled model with the price of its step on a
 * cluster.
 */
#ifndef DRIVER_DRIVER_PRICE_H
#define DRIVER_DRIVER_PRICE_H

#include "driver/driver.h"
#include "price/price_list.h"

/* An interval of a stream: a launch, what is between two launches, or a wait.
 * Those of a class follow each other without a gap, so they add up to a step.
 */
typedef struct StreamSpan {
  int instruction; /* index in the list; of a wait, the start of what ends it */
  CostTerm part;
  bool is_wait;
  Ps begin, end;
  Ps taken; /* part of it that transfers take: counted as interference */
} StreamSpan;

/* A transfer while it is the first in its queue. */
typedef struct QueueSpan {
  int instruction, queue;
  Ps begin, end;
} QueueSpan;

typedef struct PricedNode PricedNode;

typedef struct PricedClass {
  const PricedNode *nodes; /* by instruction of a span */
  VEC(StreamSpan) stream;
  VEC(QueueSpan) queues; /* spans in the order of their ends */
} PricedClass;

/* The node of an instruction, and the one of the stage that it belongs to:
 * inside the loop of a scan that is the scan.  Or a message. */
struct PricedNode {
  const ProgramStage *stage;
  const Graph *graph; /* NULL means that the instruction has no node */
  const Node *node;
  int id, outer;
  bool is_clear;           /* zeros are written to its results */
  const ProgramEdge *edge; /* that of a message; else NULL */
};

/* The training step of a class of ranks that run the same stages. */
typedef struct PricedProgram {
  const RankProgram *program;
  const EntryPoint *step;
  RankRange ranks;
  Bytes peak; /* the arena of a rank */
  /* Counted as price_programs does; NULL without spans. */
  PricedNode *nodes;
} PricedProgram;

typedef struct Priced {
  const Compilation *c;
  const Cluster *cluster; /* the cluster after --what-if */
  ClusterSlice slice;     /* its ranks, as a part of the cluster */
  CostModel model;
  int n_programs;
  PricedProgram *programs; /* in the order of their ranks */
  int shown; /* the class that is looked at: the slowest, until another is
                chosen */
  /* Step and stage of that class: its first stage, until another is chosen. */
  const EntryPoint *step;
  const ProgramStage *stage;
  Bytes peak;   /* the largest arena of a rank */
  Bytes pinned; /* memory that the plan allows; 0 means that it says nothing */
  Bytes memory; /* memory of the least device, or less if the plan says so */
  Price price;
  /* These are there with spans only. */
  int n_classes; /* classes of ranks, as in the price */
  PricedClass *classes;
} Priced;

/* The machines, and what else decides a price. */
typedef struct PriceRequest {
  /* A changed cluster; NULL means that of the compilation. */
  const Cluster *cluster;
  int64_t first_rank;     /* the rank of the cluster that runs rank 0 */
  const Profile *profile; /* measured launches, or NULL */
  /* Curves of the cluster; NULL means those that its file names. */
  const Curves *curves;
  uint32_t without; /* a bit for each term that is left out */
  bool wants_spans;
} PriceRequest;

/* Prices the training step of a compilation that has reached STATION_packed.
 * Everything lies in the arena of its module.  False after mistakes. */
bool driver_price(const Compilation *c, const PriceRequest *request,
                  Priced *out);

/* Returns how another plan of the same model is priced, without spans. */
PriceRequest priced_request(const Priced *p);

/* Looks at a class of ranks, and the first of its stages. */
void priced_show_class(Priced *p, int class);
/* Looks at a stage of the plan, and its class.  Returns false if the plan has
 * no such stage. */
bool priced_show_stage(Priced *p, int number);
/* Returns the class that is looked at.  Returns NULL if there are no spans. */
const PricedClass *priced_shown(const Priced *p);
/* Returns the program of a class. */
const PricedProgram *priced_program(const Priced *p, int class);
/* Returns the path of the value that a node belongs to: "grad." and
 * "optimizer." are what its phase says. */
const char *priced_path(const Node *node);
/* Return these of a node or a message, which is in the pass that reads it. */
const char *priced_node_path(const PricedNode *at);
const char *priced_node_name(const PricedNode *at); /* "dot" */
Phase priced_node_phase(const PricedNode *at);
Bytes priced_node_sent(const PricedNode *at);
Ps priced_length(const StreamSpan *span);
/* Returns the devices of the ranks: "a100_80g", or "a100_80g, v100_16g". */
const char *priced_devices(Arena *arena, const Priced *p);
/* Returns the name of a queue of a class: "bulk", "bulk of data" where queues
 * are those of a group, or "to rank +4" for messages. */
const char *priced_queue_name(Arena *arena, const Priced *p, int class,
                              int queue);
int priced_queues(const Priced *p, int class);

#endif
