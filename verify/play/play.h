/*
 * play.h -- plays the programs of all ranks in one process: what a final graph
 * with its packed memory computes on every rank in every call of the timeline.
 *
 * Every rank has an arena of numbers in place of bytes.  Each node reads its
 * operands from the arena, runs in the interpreter on local tensors and writes
 * its results back; collectives exchange shards between arenas.  Ranks that
 * hold the same bits share them, and what they compute of them.  The player
 * knows placements from types and the mesh alone, and shares no code with
 * partition, selection and the emitted kernels.
 */
#ifndef VERIFY_PLAY_PLAY_H
#define VERIFY_PLAY_PLAY_H

#include "interp/numbers.h"
#include "ir/program.h"

/* The places of the values of a graph, in bytes of a rank's arena; a body's
 * offsets count from the workspace of its scan.  All arrays are the caller's.
 */
typedef struct PlayLayout {
  /* Place by value: first_value[node] + result. */
  const int64_t *offset, *bytes;
  const int *first_value; /* first value of each node */
  /* Workspace of a library or a scan, by node; -1 means none. */
  const int64_t *workspace;
  const int64_t *workspace_bytes;
  /* A bool by node: the result shows the bytes of its input. */
  const bool *is_view;
  /* In a body, by value: the scan's input whose bytes it has, or the number of
   * inputs plus its result; -1 means neither. */
  const int *outside;
  /* Layouts of bodies, by node; NULL means no scan. */
  const struct PlayLayout *const *bodies;
  /* By value: bytes by which its address advances with the frame, or with the
   * slot, of a call, which are below n_copies.  NULL: no address does. */
  const int64_t *move_bytes;
  const ProgramRegister *moves_with;
  int n_copies;
  int64_t persistent_bytes, arena_bytes;
  /* Likewise of the arena in host memory, whose places count from HOST_ORIGIN.
   */
  int64_t persistent_host_bytes, host_bytes;
} PlayLayout;

/* An entry point, prepared to be played; in the arena. */
typedef struct PlayProgram PlayProgram;
/* Takes the layout of each stage. */
PlayProgram *play_program_of_stages(Arena *arena, const EntryPoint *entry,
                                    const PlayLayout *const *layouts);
/* Makes the program that of one rank of the meshes of its stages, over which
 * nothing is sharded: its player has that rank alone. */
void play_program_alone(Arena *arena, PlayProgram *program, int rank);
/* Does so for an entry point of periods, for so many units: its timeline has
 * each call that is made, whose `unit` is that of the run. */
PlayProgram *play_program_of_periods(Arena *arena, const EntryPoint *entry,
                                     const PlayLayout *const *layouts,
                                     int64_t n_units);
/* Does so for an entry point of one stage. */
PlayProgram *play_program(Arena *arena, const EntryPoint *entry,
                          const PlayLayout *layout);

/* A message between stages that the ranks of a class have sent or received. */
typedef struct PlayEdgeMessage {
  Name path; /* of the value */
  int edge;  /* index in the edges of the entry point */
  bool is_sent;
  int peer; /* rank of the other side minus own rank */
  EdgePieces pieces;
  int64_t bytes;
  DType dtype;
} PlayEdgeMessage;

/* A collective that was played, between ranks of which groups have several. */
typedef struct PlayMessage {
  const Node *node;
  const Mesh *mesh;
  /* Bytes of the parts of a rank: of operand or result, the larger. */
  int64_t bytes;
} PlayMessage;

typedef struct PlayMessages {
  Arena *arena;
  VEC(PlayMessage) list; /* collectives in the order in which they start */
  VEC(PlayEdgeMessage) between; /* messages between stages, likewise */
} PlayMessages;

/* The state of all ranks that are played in one process: an arena for each of
 * them.  Programs are played one after the other, and each finds in the
 * persistent buffers what the one before has left there. */
typedef struct Player Player;
typedef struct PlayOptions {
  const Numbers *numbers;
  int first_rank;      /* of those of the class, for messages */
  int ranks;           /* those of every graph with a mesh of ranks */
  int64_t arena_bytes; /* arena of the largest program */
  int64_t host_bytes;  /* likewise in host memory */
  uint64_t seed;       /* seed of poison, and of when collectives take effect */
  PlayMessages *messages; /* gets all that are played; or NULL */
} PlayOptions;
Player *player_create(Arena *arena, const PlayOptions *options);

/* The stage of the program whose inputs and outputs the functions below mean;
 * at first that with index 0. */
void player_select(Player *player, int stage);
int player_stages(const Player *player);

/* Poisons all but the persistent buffers.  Then the inputs are written, the
 * program runs, and its outputs are read before the next one begins. */
void player_begin(Player *player, const PlayProgram *program);
/* Collects this input from the first rank that holds each element, as a run
 * that ends and is resumed does. */
Tensor player_save(Player *player, int input, Arena *arena);
/* Forgets everything that was written before. */
void player_forget(Player *player);
/* Gives each rank its shards of a logical tensor. */
void player_write(Player *player, int input, const Tensor *logical);
void player_run(Player *player);
/* Runs programs that exchange messages, each on ranks of its own, in an order
 * that the seed of the first one chooses of those that messages allow.  They
 * have one list of edges. */
void players_run(Player *const *players, int n);
/* Runs programs of servers, each on a rank of its own, which come together at
 * sums over all of them. */
void players_run_servers(Player *const *players, int n);
/* Functions that players_run_watched calls before and after each segment, with
 * the registers of its call. */
typedef struct PlayHooks {
  void (*before)(void *user, int player, const ProgramCall *call);
  void (*after)(void *user, int player, const ProgramCall *call);
  void *user;
} PlayHooks;
void players_run_watched(Player *const *players, int n, const PlayHooks *hooks);
/* The stage and registers of a call, in place of player_select. */
void player_enter(Player *player, const ProgramCall *call);
/* Writes an input into its copy for the registers at hand, as a new value. */
void player_fill(Player *player, int input, const Tensor *logical);
/* Copies a version of an input of the stage to where the first one lies. */
void player_keep_version(Player *player, int input, int version, Arena *arena);
/* Returns the shard of an output that a rank has: of local sizes, in `arena`.
 */
Tensor player_read(Player *player, int output, int rank, Arena *arena);

typedef struct PlayDifference {
  /* Error as in NumbersDifference; 0 means that all replicas are equal. */
  double error;
  int rank;        /* first rank that has the difference */
  int64_t element; /* element of the logical tensor */
} PlayDifference;
/* Compares what each rank holds of an output with a logical tensor. */
PlayDifference player_compare(Player *player, int output, const Tensor *wanted,
                              double limit);

/* Returns one sentence, in the player's arena, about the first time that a node
 * read bytes that were not those of its operand, or that memory was used
 * otherwise than the layout says.  Returns NULL if there was none. */
const char *player_memory_fault(const Player *player);
/* Returns one sentence about the first collective whose members disagree about
 * its group, bytes or dtype.  Returns NULL if there was none. */
const char *player_message_fault(const Player *player);
/* Returns one more than the last byte that any program touched. */
int64_t player_touched_bytes(const Player *player);
/* Likewise in host memory. */
int64_t player_touched_host_bytes(const Player *player);
/* Returns how many collectives the ranks have started. */
int64_t player_collectives(const Player *player);

#endif
