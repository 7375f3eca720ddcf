/*
 * pipeline.h -- declares pipelines: the lists of what each rank computes, in
 * which order, and the messages between ranks that follow from it.
 *
 *     0F0  0F1  0B0  0B1        a schedule: calls alone (tokens.def)
 *     1F0  1B0  1F1  1B1
 *
 *     0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1       lowered
 *     1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1
 *
 * A schedule yields calls alone.  The values that pass between stages are
 * edges.  pipeline_lower inserts their messages, in one way for all
 * schedules.  rendezvous.h proves that no rank of the result hangs.
 *
 * A rank here is a position of the pipeline: it stands for all ranks that run
 * the same list.
 */
#ifndef IR_PIPELINE_PIPELINE_H
#define IR_PIPELINE_PIPELINE_H

#include "ir/ir.h"

/* ---- tokens ---- */

typedef enum TokenKind {
#define TOKEN(name, ...) TOKEN_##name,
#include "ir/pipeline/tokens.def"
  N_TOKENS
} TokenKind;

typedef enum TokenRole {
  TOKEN_ROLE_call,
  TOKEN_ROLE_send,
  TOKEN_ROLE_receive,
  TOKEN_ROLE_move,
} TokenRole;

typedef struct TokenInfo {
  const char *text;
  TokenRole role;
  bool is_of_step; /* it has no micro-batch */
} TokenInfo;

const TokenInfo *token_info(TokenKind kind);

/* An action of a rank. */
typedef struct Token {
  TokenKind kind;
  int stage;      /* send: that computes the value; receive: that reads it */
  int microbatch; /* of a step: the part of the call, 0 of a message */
  /* With the token before it one action, the results of which are there at its
   * end: "(0F7;7B3)OVERLAP_F_B". */
  bool is_joined;
  int edge;  /* send, receive: index into the edges */
  int peer;  /* send, receive: the other rank */
  Span span; /* its cell, where a person wrote it */
} Token;

typedef VEC(Token) Tokens;

/* A value that a call of one stage leaves for a call of another.  Where the
 * pipeline has B instead of I and W, both kinds mean B.  The periods of both
 * are equal. */
typedef struct PipelineEdge {
  TokenKind from, to;
  int from_stage, to_stage;
  int from_part, to_part; /* of calls of the step, which come in parts */
  Name name; /* path of the value, for messages; NULL: the only one of its kind
                between these stages */
  int64_t bytes;
  DType dtype;
} PipelineEdge;

typedef struct Pipeline {
  int n_ranks, n_stages, n_microbatches, n_edges;
  Tokens *lists; /* by rank, in order */
  const PipelineEdge *edges;
} Pipeline;

/* Appends the token as text: "2F7", "3RECV_F0"; a message that is not one of a
 * chain of stages has the other stage too: "3RECV_F0<0", "0SEND_F0>3". */
void token_print(Text *out, const Pipeline *pipeline, const Token *token);
const char *token_text(Arena *arena, const Pipeline *pipeline,
                       const Token *token);
/* Prints a line of tokens for each rank, separated by commas. */
void pipeline_print(Text *out, const Pipeline *pipeline);

/* Place of a token: in the list of its rank. */
typedef struct TokenPlace {
  int rank, at;
} TokenPlace;

/* Where the calls of a pipeline are. */
typedef struct PipelineCalls PipelineCalls;
PipelineCalls *pipeline_calls(Arena *arena, const Pipeline *pipeline);
/* Finds a call; I and W are found in B where there is no such token.  Returns
 * false if no rank makes it. */
bool pipeline_find_call(const PipelineCalls *calls, TokenKind kind, int stage,
                        int microbatch, TokenPlace *out);
/* Finds the kind of the call of the same stage and micro-batch whose values
 * one reads: of I that is F.  Returns false if there is none. */
bool token_reads_own(TokenKind kind, TokenKind *out);

/* Returns whether any list has I or W. */
bool pipeline_splits_backward(const Pipeline *pipeline);

/* ---- schedules ---- */

/* Times of the parts of a stage, in any unit. */
typedef struct PipelineTimes {
  int64_t forward, input_grad, weight_grad;
} PipelineTimes;

typedef struct PipelineShape {
  int ranks, stages, microbatches;
  PipelineTimes times;
} PipelineShape;

/* The stages of rank r of p. */
typedef enum PipelinePlacement {
  PLACEMENT_single, /* r */
  PLACEMENT_looped, /* r, p + r, 2p + r and so on */
  PLACEMENT_vee,    /* r and 2p - 1 - r */
  PLACEMENT_halves, /* r and p - 1 - r, for a half of the micro-batches each */
} PipelinePlacement;

/* The arguments that a name takes. */
typedef enum PipelineArgs {
  PIPELINE_ARGS_none,
  PIPELINE_ARGS_chunks,   /* v = 2: stages of each rank */
  PIPELINE_ARGS_times,    /* times = (2, 2, 1): of F, I and W */
  PIPELINE_ARGS_vertical, /* vertical = true: one version in all stages */
} PipelineArgs;

typedef struct PipelineSchedule {
  const char *name, *meaning;
  PipelinePlacement placement;
  PipelineArgs args;
  bool recomputes; /* the backward pass of a stage runs its forward pass too */
  bool splits_backward; /* it has I and W */
  bool updates_early;   /* a stage need not wait for the gradients of others */
  bool has_versions;    /* of parameters: an update for each micro-batch */
  bool has_two;         /* or one for all of a batch, with two versions */
  bool is_compiled;     /* plans may name it, and a search may choose it */
  bool is_pinned;       /* plans may name it, and no search chooses it */
  /* Returns what it needs that the shape has not, or NULL. */
  const char *(*needs)(Arena *arena, const PipelineShape *shape);
  void (*fill)(Arena *arena, const PipelineShape *shape, Tokens *lists);
} PipelineSchedule;

int pipeline_schedule_count(void);
const PipelineSchedule *pipeline_schedule(int index);
/* Returns the schedule of this name.  Returns NULL if there is none. */
const PipelineSchedule *pipeline_schedule_find(const char *name);
/* Returns whether it makes one list of all stages of a rank. */
bool pipeline_has_chunks(const PipelineSchedule *schedule);
/* Returns the rank of a stage in a pipeline of p ranks, of a schedule whose
 * stages each are on one. */
int pipeline_rank_of_stage(const PipelineSchedule *schedule, int n_ranks,
                           int stage);
/* Returns why a schedule cannot have this shape: "'x' needs ...".  Returns NULL
 * if it can. */
const char *pipeline_schedule_refuses(Arena *arena,
                                      const PipelineSchedule *schedule,
                                      const PipelineShape *shape);
/* A schedule as plans and commands spell it: "1f1b", "interleaved(v = 2)",
 * "zbh2(times = (2, 2, 1))". */
typedef struct PipelineSpelling {
  const PipelineSchedule *schedule; /* NULL: no schedule has this name */
  const char *name;
  int chunks; /* stages of each rank */
  bool has_times;
  PipelineTimes times; /* 1 each where it has none */
  /* Where parameters have versions, all stages read the same. */
  bool is_vertical;
} PipelineSpelling;

/* Reads a name with its arguments.  Returns NULL, or what is wrong with the
 * arguments, as a sentence. */
const char *pipeline_spelling_read(Arena *arena, const char *text,
                                   PipelineSpelling *out);
/* Returns why a schedule has no argument 'v', as a sentence. */
const char *pipeline_schedule_takes_no_chunks(Arena *arena,
                                              const PipelineSchedule *schedule);
/* Returns a schedule with the defaults of its arguments, as one writes it. */
const char *pipeline_schedule_call(Arena *arena,
                                   const PipelineSchedule *schedule);

/* Returns the calls of a schedule, with the edges of a chain of stages.  The
 * schedule does not refuse the shape. */
Pipeline *pipeline_make(Arena *arena, const PipelineSchedule *schedule,
                        const PipelineShape *shape);
/* Returns the pipeline with stage s on rank `rank_of_stage[s]`, of `n_ranks`.
 * Calls of stages that share a rank have the order in which a sweep over the
 * ranks of `pipeline` finds them ready. */
Pipeline *pipeline_place(Arena *arena, const Pipeline *pipeline, int n_ranks,
                         const int *rank_of_stage);
/* Returns the edges of a chain: from F to F of the next stage, and from I (or
 * B) to I of the one before. */
const PipelineEdge *pipeline_chain(Arena *arena, int n_stages, int *out_n);
/* Returns the index among them of the edge between two neighbours.  Returns -1
 * if there is none. */
int pipeline_chain_edge(int n_stages, int from_stage, int to_stage);

/* ---- lowering ---- */

/* Returns the pipeline with the messages of its edges; those between stages of
 * one rank have none.  A sweep takes the first call of each rank, rank after
 * rank, if all that it reads is there.  It appends the sends behind the call
 * and, at that moment, the receives to the lists of their readers: all ranks
 * follow one sequence, which cannot hang.  Then each receive moves towards its
 * reader as far as rendezvous_check still proves that.
 *
 * Where calls wait for each other in a circle the sweep takes one of them
 * nevertheless, and rendezvous_check of the result finds the circle.  Tokens of
 * messages that `pipeline` has are left out. */
Pipeline *pipeline_lower(Arena *arena, const Pipeline *pipeline);
/* Moves each receive towards its reader; messages must be fine before.  A
 * receive stays before calls that begin when its sender needs the memory of the
 * value again: `begins` has, by rank and call, the time at which it begins. */
void pipeline_delay_receives(Arena *arena, Pipeline *pipeline,
                             const int64_t *const *begins);

/* ---- frames ---- */

/* Memory that holds values of a micro-batch from one token to another one of
 * the same micro-batch on a rank. */
typedef struct FrameClass {
  int stage;
  TokenKind first, last; /* I and W mean B where there is no such token */
  int edge; /* of first or last, where that is a message; else -1 */
} FrameClass;

/* Returns how many frames the rank needs: as many micro-batches as are alive at
 * a time.  Writes the frame of each micro-batch (-1: it has none), the lowest
 * one that is free when it begins, unless `out_frames` is NULL. */
int pipeline_frames(Arena *arena, const Pipeline *pipeline, int rank,
                    const FrameClass *class, int *out_frames);
/* Finds two micro-batches that share a frame while both are alive.  Returns
 * false if there are none. */
bool pipeline_frames_clash(Arena *arena, const Pipeline *pipeline, int rank,
                           const FrameClass *class, const int *frames,
                           int out_microbatches[2]);

/* ---- lists that a person wrote ---- */

/* Reads a list, a line for each rank; an empty cell is no token.  The stages
 * are a chain.  Returns NULL, with messages, where a cell is no token or a call
 * stands there twice.  Messages have no edge and no peer yet. */
Pipeline *pipeline_read(Arena *arena, Diags *diags, const Source *source);
/* Reports calls that need what no rank computes, or what the same rank computes
 * later. */
void pipeline_check_calls(Arena *arena, Diags *diags, const Pipeline *pipeline);
/* Reports what a step lacks: micro-batches that pass through no stage or, where
 * any call goes back, have no B, or I and W; and parts that B has, too. */
void pipeline_check_complete(Arena *arena, Diags *diags,
                             const Pipeline *pipeline);
/* Finds edge and peer of each message; reports messages that are no edge, or
 * stand there twice, and stages of which two ranks compute a micro-batch. */
void pipeline_find_messages(Arena *arena, Diags *diags, Pipeline *pipeline);
/* Returns whether any list has a message. */
bool pipeline_has_messages(const Pipeline *pipeline);

#endif
