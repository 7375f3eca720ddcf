/*
 * verify_servers.h -- declares the messages between workers and servers of
 * parameters, and what verify_play.c does for them.
 */
#ifndef VERIFY_VERIFY_SERVERS_H
#define VERIFY_VERIFY_SERVERS_H

#include "verify/verify_periods.h"

/* The sum over workers of one of their outputs, as an input of a server. */
typedef struct VerifyPush {
  int server, from_output, to_input; /* from_output: -1: no worker sends it */
  VEC(int) workers;                  /* in the order in which they are added */
} VerifyPush;

/* An output of a server, as an input of all workers. */
typedef struct VerifyReply {
  int server, from_output, to_input;
} VerifyReply;

struct VerifyServers {
  VEC(VerifyPush) pushes;
  VEC(VerifyReply) replies;
};

/* Returns the messages of a step, whose graphs are those of the workers and of
 * each server. */
VerifyServers *verify_servers(Arena *arena, const StageGraphs *graphs);
/* Returns whether servers have rows of a table. */
bool verify_servers_divide(const StageGraphs *graphs);
/* Returns what an output of a server must be, of which `wanted` has all rows.
 */
Tensor verify_rows(VerifyRun *v, const PlayClass *class, int output,
                   const Tensor *wanted, Arena *arena);
/* Returns what a server begins with, of which `whole` has all rows. */
Tensor verify_first_rows(VerifyRun *v, const PlayClass *class, const Type *type,
                         const Tensor *whole, Arena *arena);
/* Gives workers the averages that servers have made. */
void verify_write_averages(VerifyRun *v, const PlayClass *class, int stage);
/* Plays the workers, their pushes, the servers and their replies. */
void verify_play_servers(VerifyRun *v, const PlayClass *classes,
                         Player *const *players, const VerifyStep *step);

#endif
