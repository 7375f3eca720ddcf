/*
 * internal.h -- declares what the files of the player tell each other.
 */
#ifndef IR_INTERP_PLAY_INTERNAL_H
#define IR_INTERP_PLAY_INTERNAL_H

#include "ir/interp/play.h"

/* The groups of ranks that differ on some axes alone. */
typedef struct PlayGroups {
  int n, size;
  int *of_rank; /* the group of a rank */
  int *members; /* [group * size + i], in ascending order */
} PlayGroups;

struct PlayProgram {
  const Graph *graph;
  const Graph *local; /* the same nodes with the types of type_local */
  const PlayLayout *layout;
  const MeshPlace *places; /* [microbatch * n_ranks + rank] */
  int n_ranks, n_microbatches;
};

/* A graph that is being played: of a program, or the body of a scan in it. */
typedef struct Frame {
  const Graph *graph, *local;
  const PlayLayout *layout;
  int *stamp;   /* by value: what its bytes are stamped with */
  int *waiting; /* by value: the collective to wait for, plus 1; 0: none */
  const struct Frame *enclosing;
  int scan; /* its node in the enclosing graph */
  int64_t iteration;
} Frame;

/* A collective between its start and its wait. */
typedef struct Pending {
  const Frame *frame;
  int id;
  bool is_done;
} Pending;

struct Player {
  Arena *arena;
  PlayOptions options;
  size_t cell_bytes;
  unsigned char **cells; /* by rank: a cell for each byte of the arena; element
                            i of a value is in the cell of its first byte */
  int *stamps;           /* by byte: which write it was; equal on all ranks */
  int last_stamp;
  uint64_t n_random; /* poisons made so far */
  int64_t touched_bytes, n_collectives;
  const char *memory_fault, *message_fault;
  const PlayProgram *program;
  PlayGroups **groups; /* of the program, by set of axes; NULL: not made yet */
  Frame frame;
  int microbatch;
  VEC(Pending) pending;
};

/* ---- memory.c: values in arenas ---- */

int play_value(const Frame *frame, Value value);
/* The value whose bytes a view shows. */
Value play_viewed(const Frame *frame, Value value);
int64_t play_address(const Player *player, const Frame *frame, Value value);
const MeshPlace *play_place(const Player *player, int rank);
/* The tensor that a rank holds, by local type, copied out of its arena. */
Tensor play_load(const Player *player, const Frame *frame, Value value,
                 int rank, Arena *arena);
void play_store(Player *player, const Frame *frame, Value value, int rank,
                const Tensor *tensor);
/* The bytes of a value begin to be those of a new write. */
void play_stamp(Player *player, const Frame *frame, Value value);
void play_stamp_bytes(Player *player, int64_t begin, int64_t n, int stamp);
/* Reports, if the bytes of a value are not those that were written last to it,
 * that node `reader` would read something else. */
void play_check(Player *player, const Frame *frame, Value value,
                const char *reader);
/* Numbers that mean nothing, other ones each time. */
void play_poison(Player *player, DType dtype, void *to, int64_t n);
void play_poison_value(Player *player, const Frame *frame, Value value);
/* The same, or NaN, in the padding of a shard. */
void play_poison_padding(Player *player, const MeshPlace *place,
                         const Type *type, Tensor *local);

/* ---- collectives.c ---- */

/* The operand of every rank, and the result of every rank. */
typedef struct Exchange {
  Player *player;
  const Node *node;
  const Type *from, *to; /* with placements */
  AxisSet axes;
  ReduceKind kind;
  const Tensor *in; /* by rank */
  Tensor *out;      /* by rank: what the bytes of the result hold before */
} Exchange;

/* The groups of a collective. */
const PlayGroups *play_groups(const Player *player, AxisSet axes);
/* Fills out[rank] for every rank. */
typedef void PlayCollective(Exchange *exchange);
/* How the player does an operator; NULL: it does not know it. */
PlayCollective *play_collective(Op op);
/* The exchange of part `part` of a collective, in which it has the placements
 * of its operand and result. */
Exchange play_exchange(Player *player, const Frame *frame, int id, int part);
/* Whether the groups of a collective are a partition of the ranks, of which
 * each member sends as many bytes of the same dtype. */
void play_check_messages(Player *player, const Frame *frame, int id);

#endif
