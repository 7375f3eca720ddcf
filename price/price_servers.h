/*
 * price_servers.h -- declares the price of a step whose ranks are workers and
 * servers of parameters (`sync = server(...)` of a plan).
 */
#ifndef PRICE_PRICE_SERVERS_H
#define PRICE_PRICE_SERVERS_H

#include "price/price_list.h"

/* One server: what it does with a push, and the bytes of both messages. */
typedef struct PricedServer {
  const EntryPoint *update; /* its mesh has all servers */
  Bytes push, reply;
} PricedServer;

typedef struct PricedServers {
  PriceProgram workers; /* ranks from 0 on */
  int n;                /* servers, on the ranks behind */
  const PricedServer *servers;
  int64_t staleness;
} PricedServers;

/* Returns the price.  Its step is the time in which the workers make as many
 * clocks as there are workers, in steady state, and its parts are those of a
 * clock, the mean of all.  Its classes are those of the workers, whose step is
 * the mean of their clocks, and then one of each server.  `tell`, if there is
 * one, gets the launches and waits of a step of each class: a server serves the
 * pushes of that step at its begin, and the identifier of what copies
 * parameters or waits for servers is that behind all instructions and calls. */
Price price_servers(Arena *arena, const PricedServers *servers,
                    const CostModel *model, const ClusterSlice *slice,
                    SimTell *tell, void *user);

/* ---- the queue ---- */

/* Workers and servers as a queue, whatever their times are made of. */
typedef struct ServerQueue {
  int workers, servers;
  int64_t staleness;
  const Ps *compute; /* by worker: from a reply to the next push */
  /* By server: from a push to its reply; with staleness 0 from the last push
   * of all. */
  const Ps *service;
  int n_links;
  const SimTransfer *pushes, *replies; /* [worker * servers + server] */
} ServerQueue;

/* Finds the mean time between two clocks of each worker in steady state. */
void server_queue_clocks(Arena *arena, const ServerQueue *queue, Ps *out);

#endif
