/*
 * internal.h -- declares what the files of the player tell each other.
 */
#ifndef VERIFY_PLAY_INTERNAL_H
#define VERIFY_PLAY_INTERNAL_H

#include "verify/play/play.h"

/* The groups of ranks that differ on some axes alone. */
typedef struct PlayGroups {
  int n, size;
  int *of_rank; /* the group of a rank */
  int *members; /* [group * size + i], in ascending order */
} PlayGroups;

/* Ranks of one class hold equal numbers.  A class is numbered where it comes
 * first; equal divisions of the ranks are one object. */
typedef struct RankClasses {
  int id, n;
  const int *of_rank;             /* the class of a rank */
  const int *first;               /* the first rank of a class */
  const struct RankClasses *next; /* next class of the same hash */
} RankClasses;

/* The numbers that the ranks hold of a value: an array for each class. */
typedef struct Shards {
  const RankClasses *classes;
  DType dtype;
  int n_users;
  int64_t n;           /* elements that a rank holds */
  size_t size_bytes;   /* bytes of an element */
  unsigned char *data; /* element i of a class: number class * n + i */
  int capacity;        /* index of the size of `data` */
  struct Shards *next; /* unused, of this capacity */
} Shards;

/* The elements of shards from one on. */
typedef struct ShardView {
  Shards *shards;
  int64_t first;
} ShardView;

/* Bytes of the arenas of all ranks, in which elements of shards lie. */
typedef struct Extent {
  int64_t begin, end;
  Shards *shards;
  int64_t first; /* the element at `begin` */
} Extent;

typedef struct PlayStage {
  const Graph *graph;
  const Graph *local; /* nodes of it with the types of type_local */
  const PlayLayout *layout;
  const MeshPlace *places; /* [microbatch * n_ranks + rank] */
} PlayStage;

struct PlayProgram {
  EntryPoint entry; /* whose timeline says which nodes run, and when */
  int n_stages, n_ranks;
  PlayStage *stages;
  int64_t persistent_bytes, arena_bytes;
  int64_t persistent_host_bytes, host_bytes;
  /* The calls of periods whose messages are listed, those of one; else 0. */
  int first_listed, end_listed;
};

/* A graph that is being played: of a program, or the body of a scan in it. */
typedef struct Frame {
  const Graph *graph, *local;
  const PlayLayout *layout;
  const int *registers; /* those of the player */
  int n_values, n_copies;
  /* Indexed by copy and value: the number of the write that made the value. Its
   * bytes are stamped with this number.  A read that finds another one reads
   * bytes that were overwritten. */
  int *stamp;
  int *microbatch; /* likewise: the micro-batch whose call made the value */
  int *waiting;    /* likewise: collective to wait for, plus 1; 0 means none */
  const struct Frame *enclosing;
  int scan; /* its node in the enclosing graph */
  int64_t iteration;
} Frame;

/* A collective between its start and its wait. */
typedef struct Pending {
  const Frame *frame;
  int id;
  bool is_done;
  int registers[N_REGISTERS];
} Pending;

enum { SHARD_CAPACITIES = 168 };

struct Player {
  Arena *arena;
  PlayOptions options;
  VEC(Extent) extents;              /* ascending, none over another */
  Shards *unused[SHARD_CAPACITIES]; /* lists, by capacity */
  Map *classes;                     /* classes by hash */
  Map *joined, *grouped; /* memos of classes_join and classes_of_members */
  int n_classes;
  int *stamps;      /* number of the write of each byte; equal on all ranks */
  int *host_stamps; /* likewise in host memory */
  int last_stamp;
  uint64_t n_random; /* poisons made so far */
  int64_t touched_bytes, touched_host_bytes, n_collectives;
  const char *memory_fault, *message_fault;
  const PlayProgram *program;
  /* Groups by set of axes of the program.  NULL means not made yet. */
  PlayGroups **groups;
  const RankClasses **of_axes;
  const PlayStage *stage; /* that of the call at hand */
  Frame *frames;          /* by stage */
  Frame *frame;           /* of `stage` */
  int registers[N_REGISTERS];
  int microbatch;
  bool lists_messages; /* of the call at hand */
  bool is_first;       /* the call at hand is the first of its segment */
  VEC(Pending) pending;
};

/* ---- classes.c: groups of ranks, and ranks that hold the same ---- */

/* Returns the groups of a collective over these axes. */
const PlayGroups *play_groups(Player *player, AxisSet axes);
/* Returns classes of ranks that have equal keys. */
const RankClasses *classes_of_keys(Player *player, const uint64_t *keys);
/* Returns one class of all ranks. */
const RankClasses *classes_of_all(Player *player);
/* Returns classes of ranks with equal coordinates on these axes. */
const RankClasses *classes_of_axes(Player *player, AxisSet axes);
/* Returns classes of ranks that are equal in both. */
const RankClasses *classes_join(Player *player, const RankClasses *a,
                                const RankClasses *b);
/* Returns classes of ranks whose groups are equal, member by member. */
const RankClasses *classes_of_members(Player *player, AxisSet axes,
                                      const RankClasses *classes);

/* ---- shards.c: the numbers in the arenas of all ranks ---- */

/* Returns zeros with one user, who releases them. */
Shards *shards_create(Player *player, const RankClasses *classes, DType dtype,
                      int64_t n);
void shards_release(Player *player, Shards *shards);
/* Returns the first element that a class has. */
void *shards_of_class(const Shards *shards, int of_class);
/* Replaces shards by equal ones in which no two classes have equal numbers. */
Shards *shards_merged(Player *player, Shards *shards);
/* Fills memory with numbers that mean nothing, other ones each time. */
void play_poison(Player *player, DType dtype, void *to, int64_t n);
/* Reads what lies at an address, as n elements of a dtype; where there is
 * nothing, or something else, that is poison.  The caller releases the view's
 * shards. */
ShardView extents_read(Player *player, int64_t at, DType dtype, int64_t n);
/* Notes that n elements lie at the address from now on. */
void extents_put(Player *player, int64_t at, ShardView view, int64_t n);
/* Notes that nothing lies in a range of addresses. */
void extents_clear(Player *player, int64_t begin, int64_t end);

/* ---- memory.c: values in arenas ---- */

int play_value(const Frame *frame, Value value);
/* Returns the index of a value in `stamp` and `waiting` of its frame. */
int play_copy_of(const Frame *frame, Value value);
/* Returns the value whose bytes a view shows. */
Value play_viewed(const Frame *frame, Value value);
int64_t play_address(const Player *player, const Frame *frame, Value value);
const MeshPlace *play_place(const Player *player, int rank);
/* Finds what the ranks hold of a value; the caller releases it. */
ShardView play_read(Player *player, const Frame *frame, Value value);
void play_release(Player *player, ShardView view);
/* Returns the tensor of this local type that a rank has; its elements belong to
 * the view. */
Tensor play_tensor(const Player *player, ShardView view, int rank,
                   const Type *local);
void play_put(Player *player, const Frame *frame, Value value, Shards *shards);
/* Makes the elements of a value lie at a second place, too. */
void play_copy(Player *player, const Frame *frame, Value from, Value to);
/* Marks the bytes of a value as those of a new write. */
void play_stamp(Player *player, const Frame *frame, Value value);
void play_stamp_bytes(Player *player, int64_t begin, int64_t n, int stamp);
/* Returns the rank, stage and micro-batch at hand as the end of a sentence; ""
 * where the program has one stage. */
const char *play_where(const Player *player);
/* Reports, if the bytes of a value are not those that were written last to it,
 * that node `reader` would read something else. */
void play_check(Player *player, const Frame *frame, Value value,
                const char *reader);
void play_poison_value(Player *player, const Frame *frame, Value value);
/* Writes poison, or NaN, into the padding of a shard. */
void play_poison_padding(Player *player, const MeshPlace *place,
                         const Type *type, Tensor *local);

/* ---- play.c: calls ---- */

/* Makes a stage and registers those of what follows. */
void play_set_registers(Player *player, int stage, const int *registers);
/* Plays the nodes of a segment. */
void play_segment(Player *player, const ProgramCall *call);
void play_node(Player *player, const Frame *frame, int id);
/* Starts a sum with the ranks of other players, who exchange the operands. */
void play_start_sum(Player *player, int id);
/* Waits for the collective that makes a value. */
void play_wait_for(Player *player, const Frame *frame, Value value);
/* Sets a value of the stage at hand to zero. */
void play_clear(Player *player, Value value);
/* Ends a step. */
void play_end(Player *player);

/* ---- periods.c ---- */

/* After an update: what it has written is what inputs are. */
void play_hand_over(Player *player);

/* ---- replicas.c ---- */

/* Plays the updates of replicas, each on a player of its own, node by node:
 * they add up their gradients.  All have one graph. */
void play_updates(Player *const *players, const ProgramCall *const *calls,
                  int n);
/* Sets to zero what the passes of a unit would have left. */
void play_clears(Player *player, const ProgramCall *call);

/* ---- collectives.c ---- */

/* Returns whether the player exchanges shards for an operator. */
bool play_is_collective(Op op);
/* Computes a collective; its operands lie in their places or, if
 * `reads_results` is true, in those of its results. */
void play_exchange(Player *player, const Frame *frame, int id,
                   bool reads_results);
/* Checks that the groups of a collective are a partition of the ranks, of which
 * each member sends as many bytes of the same dtype. */
void play_check_messages(Player *player, const Frame *frame, int id);

/* ---- replicas.c: sums over players ---- */

/* Adds what a player of one rank has of a value to a sum, or begins the sum. */
void play_add(Player *player, Value of, const Type *type, Shards *sum,
              bool is_first);
/* Gives a player a copy of the sum as this value. */
void play_put_sum(Player *player, Value to, const Type *type,
                  const Shards *sum);

#endif
