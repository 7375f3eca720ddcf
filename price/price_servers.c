/*
 * price_servers.c -- prices workers and servers of parameters: what each of
 * them computes as a program of its own, and between them a queue.
 *
 *     worker   its program, without messages     compute
 *     push     a message from rank to rank, as between stages, of the bytes of
 *              the gradients of a server; reply: of its parameters
 *     server   bytes of gradients added up or copied, its program, bytes of
 *              parameters copied for each reply     service
 *
 * Each rank is a program of the simulator there, so messages share the links
 * that their ranks have in common.  A worker that has pushed computes nothing
 * until it has all replies, so all that a clock takes beyond its program is
 * time in which it waits for servers.
 */
#include "price/price_servers.h"

#include "price/messages.h"

typedef struct Spans {
  Arena *arena;
  VEC(SimSpan) spans;
} Spans;

typedef struct ServersPricing {
  Arena *arena;
  const PricedServers *of;
  const ClusterSlice *slice;
  const CostModel *models; /* by group of the slice */
  SharedLinks links;
  Price workers;
  const Price **updates; /* by server */
  ServerQueue queue;
  Ps *clocks; /* by worker */
  ServerLoads loads;
  SimTell *tell; /* or NULL */
  void *user;
  Spans of_workers, *of_updates; /* by server; with `tell` */
} ServersPricing;

/* ---- ranks ---- */

static int group_of(const ServersPricing *p, int64_t rank) {
  int g = 0;
  while (rank >= p->slice->groups[g].first + p->slice->groups[g].n) g++;
  return g;
}

static const PriceClass *class_of(const Price *price, int64_t rank) {
  const PriceClass *class = price->classes;
  while (rank >= class->first_rank + class->ranks) class ++;
  return class;
}

static int64_t rank_of(const ServersPricing *p, int server) {
  return p->queue.workers + server;
}

static const PriceClass *update_of(const ServersPricing *p, int server) {
  return class_of(p->updates[server], rank_of(p, server));
}

/* ---- messages ---- */

static MessageSide side_of(const ServersPricing *p, const ClusterSlice *own,
                           int64_t rank, int queue) {
  return (MessageSide){.program = (int)rank,
                       .ranks = {rank, 1},
                       .slice = own,
                       .models = &p->models[group_of(p, rank)],
                       .queue = queue};
}

static SimTransfer message_of(const ServersPricing *p, int64_t from, int out,
                              int64_t to, int in, Bytes bytes) {
  Arena *scratch = arena_beside(p->arena);
  SimTransfers transfers = {0};
  ClusterSlice sender =
      cluster_slice(scratch, p->slice->cluster, p->slice->first + from, 1);
  ClusterSlice receiver =
      cluster_slice(scratch, p->slice->cluster, p->slice->first + to, 1);
  MessageSide sides[] = {side_of(p, &sender, from, out),
                         side_of(p, &receiver, to, in)};
  ProgramEdge edge = {.bytes = bytes, .dtype = DT_u8};
  messages_add(scratch, p->slice, &p->links, &sides[0], &sides[1], &edge,
               &transfers);
  SimTransfer found = transfers.data[0];
  found.n_starts = 1;
  found.loads = arena_copy(p->arena, found.loads,
                           (size_t)found.n_loads * sizeof *found.loads);
  arena_destroy(scratch);
  return found;
}

static void find_messages(ServersPricing *p) {
  ServerQueue *q = &p->queue;
  int n = q->workers * q->servers;
  SimTransfer *pushes = ARENA_ARRAY(p->arena, SimTransfer, n),
              *replies = ARENA_ARRAY(p->arena, SimTransfer, n);
  for (int w = 0; w < q->workers; w++)
    for (int s = 0; s < q->servers; s++) {
      const PricedServer *server = &p->of->servers[s];
      int at = w * q->servers + s;
      pushes[at] = message_of(p, w, s, rank_of(p, s), w, server->push);
      replies[at] = message_of(p, rank_of(p, s), w, w, s, server->reply);
    }
  q->pushes = pushes;
  q->replies = replies;
  q->n_links = shared_links_count(&p->links);
}

static void find_links(ServersPricing *p, bool are_shared) {
  int n = p->queue.workers + p->queue.servers;
  RankRange *ranks = ARENA_ARRAY(p->arena, RankRange, n);
  for (int r = 0; r < n; r++) ranks[r] = (RankRange){r, 1};
  int n_queues =
      p->queue.workers > p->queue.servers ? p->queue.workers : p->queue.servers;
  p->links =
      shared_links_of(p->arena, p->slice, ranks, n, n_queues, are_shared);
}

/* ---- services ---- */

static bool counts(const ServersPricing *p, CostTerm term) {
  return cost_counts(p->models, term);
}

/* A server does this for one push beside its program, or for all of BSP: it
 * reads gradients and writes their sum, and copies parameters for replies. */
static Ps copies_of(const ServersPricing *p, int server) {
  const PricedServer *of = &p->of->servers[server];
  const CostModel *model = &p->models[group_of(p, rank_of(p, server))];
  int pushes = p->queue.staleness == 0 ? p->queue.workers : 1;
  double bytes =
      (double)of->push * (pushes + 1) + 2.0 * (double)of->reply * pushes;
  return counts(p, COST_update) ? cost_bytes(model, bytes) : 0;
}

static int services_in_step(const ServersPricing *p) {
  if (!counts(p, COST_server)) return 0;
  return p->queue.staleness == 0 ? 1 : p->queue.workers;
}

static void find_times(ServersPricing *p) {
  ServerQueue *q = &p->queue;
  Ps *compute = ARENA_ARRAY(p->arena, Ps, q->workers),
     *service = ARENA_ARRAY(p->arena, Ps, q->servers);
  for (int w = 0; w < q->workers; w++)
    compute[w] = class_of(&p->workers, w)->step;
  for (int s = 0; s < q->servers; s++)
    if (counts(p, COST_server))
      service[s] = update_of(p, s)->step + copies_of(p, s);
  q->compute = compute;
  q->service = service;
  p->clocks = ARENA_ARRAY(p->arena, Ps, q->workers);
}

/* ---- loads ---- */

static Ps rounded(double time) {
  return (Ps)(time + 0.5);
}

/* A faster worker makes more clocks in a step. */
static void add_loads(const ServersPricing *p, const SimTransfer *transfers,
                      Ps step, double *busy) {
  const ServerQueue *q = &p->queue;
  for (int i = 0; i < q->workers * q->servers; i++) {
    Ps clock = p->clocks[i / q->servers];
    double n = clock > 0 ? (double)step / (double)clock : 1;
    for (int l = 0; l < transfers[i].n_loads; l++)
      busy[transfers[i].loads[l].link] +=
          n * (double)transfers[i].loads[l].busy;
  }
}

static void find_fullest_link(ServersPricing *p, Ps step) {
  const ServerQueue *q = &p->queue;
  double *busy = ARENA_ARRAY(p->arena, double, q->n_links);
  int fullest = 0;
  add_loads(p, q->pushes, step, busy);
  add_loads(p, q->replies, step, busy);
  for (int l = 1; l < q->n_links; l++)
    if (busy[l] > busy[fullest]) fullest = l;
  SharedLinkOwner owner = shared_link_owner(&p->links, fullest);
  p->loads.link = rounded(busy[fullest]);
  p->loads.link_rank = owner.program;
  p->loads.link_to = owner.direction;
}

static double harmonic_mean(const Ps *clocks, int n) {
  double rates = 0;
  for (int w = 0; w < n; w++)
    rates += 1 / (clocks[w] > 0 ? (double)clocks[w] : 1.0);
  return n / rates;
}

static void find_loads(ServersPricing *p, Ps step) {
  const ServerQueue *q = &p->queue;
  ServerLoads *loads = &p->loads;
  *loads = (ServerLoads){.n = q->servers,
                         .workers = q->workers,
                         .staleness = q->staleness,
                         .fastest = p->clocks[0],
                         .slowest = p->clocks[0]};
  for (int w = 0; w < q->workers; w++) {
    if (p->clocks[w] < loads->fastest) loads->fastest = p->clocks[w];
    if (p->clocks[w] > loads->slowest) loads->slowest = p->clocks[w];
  }
  for (int s = 0; s < q->servers; s++) {
    Ps service = q->service[s] * services_in_step(p);
    if (s > 0 && service <= loads->service) continue;
    loads->service = service;
    loads->service_rank = rank_of(p, s);
  }
  find_fullest_link(p, step);
}

/* ---- the price ---- */

/* The clock of a worker is longer than its program. */
static void set_step(PriceClass *class, Ps step) {
  Ps waits = step > class->step ? step - class->step : 0;
  class->parts[COST_server] += waits;
  class->exposed += waits;
  class->step += waits;
  class->begin = 0;
}

static Bytes pushed(const ServersPricing *p) {
  Bytes sent = 0;
  for (int s = 0; s < p->of->n; s++) sent += p->of->servers[s].push;
  return sent;
}

static PriceClass class_of_server(const ServersPricing *p, int server,
                                  Ps step) {
  PriceClass class = *update_of(p, server);
  int n = services_in_step(p);
  Ps copies = copies_of(p, server);
  for (int part = 0; part < N_COST_PARTS; part++) class.parts[part] *= n;
  class.parts[COST_update] += n * copies;
  class.step = n * (class.step + copies);
  class.compute = n * (class.compute + copies);
  class.exposed *= n;
  class.program = 1 + server;
  class.first_rank = rank_of(p, server);
  class.ranks = 1;
  class.n_queues = 0;
  class.sent = p->of->servers[server].reply * p->queue.workers;
  set_step(&class, step);
  return class;
}

/* Means of a window are not exact: those that are equal but for 1 % are that of
 * all workers. */
static Ps step_of(const ServersPricing *p, const PriceClass *class, Ps all) {
  Ps own = rounded(harmonic_mean(&p->clocks[class->first_rank], class->ranks));
  Ps apart = own < all ? all - own : own - all;
  return apart <= all / 100 ? all : own;
}

static void find_classes(const ServersPricing *p, Price *price) {
  int n = price->n_classes;
  PriceClass *classes = ARENA_ARRAY(p->arena, PriceClass, n + p->of->n);
  price->slowest = 0;
  for (int c = 0; c < n; c++) {
    PriceClass *class = &classes[c];
    *class = price->classes[c];
    class->sent += pushed(p);
    set_step(class, step_of(p, class, price->step));
    if (class->step > classes[price->slowest].step) price->slowest = c;
  }
  for (int s = 0; s < p->of->n; s++)
    classes[n + s] = class_of_server(p, s, price->step);
  price->classes = classes;
  price->n_classes = n + p->of->n;
}

/* The parts of the mean clock: a class has as many of them as it has
 * ranks, and as it is faster.  What is rounded is time that ranks wait. */
static void find_parts(const ServersPricing *p, Price *price) {
  double parts[N_COST_PARTS] = {0}, compute = 0, all = 0;
  for (int c = 0; c < price->n_classes - p->of->n; c++) {
    const PriceClass *class = &price->classes[c];
    double clocks = class->ranks / (class->step > 0 ? (double)class->step : 1);
    for (int part = 0; part < N_COST_PARTS; part++)
      parts[part] += clocks * (double)class->parts[part];
    compute += clocks * (double)class->compute;
    all += clocks;
  }
  Ps left = price->step;
  for (int part = 0; part < N_COST_PARTS; part++) {
    price->parts[part] = rounded(parts[part] / all);
    if (part != COST_server) left -= price->parts[part];
  }
  if (left < 0) price->step -= left;
  price->parts[COST_server] = left > 0 ? left : 0;
  price->compute = rounded(compute / all);
  price->exposed = price->step - price->compute;
}

/* ---- spans ---- */

static void keep_span(void *user, const SimSpan *span) {
  Spans *spans = user;
  vec_push(spans->arena, &spans->spans, *span);
}

/* Those of class `from` of a price, as those of class `to`, so much later. */
static void tell_class(const ServersPricing *p, const Spans *spans, int from,
                       int to, Ps later) {
  for (int i = 0; i < spans->spans.n; i++) {
    SimSpan span = spans->spans.data[i];
    if (span.class != from) continue;
    span.class = to;
    span.begin += later;
    span.end += later;
    p->tell(p->user, &span);
  }
}

/* Tells of what has no instruction. */
static void tell_rest(const ServersPricing *p, const EntryPoint *entry,
                      SimSpan span) {
  span.queue = -1;
  span.id = entry->timeline.n;
  for (int s = 0; s < entry->stages.n; s++)
    span.id += entry->stages.data[s].instructions->instructions.n;
  if (span.end > span.begin) p->tell(p->user, &span);
}

static void tell_wait(const ServersPricing *p, const EntryPoint *entry,
                      int class, Ps begin, Ps end) {
  tell_rest(p, entry,
            (SimSpan){.class = class,
                      .term = COST_server,
                      .is_wait = true,
                      .begin = begin,
                      .end = end});
}

static void tell_server(const ServersPricing *p, const Price *price, int server,
                        int class) {
  const PriceClass *update = update_of(p, server);
  const EntryPoint *entry = p->of->servers[server].update;
  int from = (int)(update - p->updates[server]->classes);
  Ps copies = copies_of(p, server), at = 0;
  for (int i = 0; i < services_in_step(p); i++) {
    tell_class(p, &p->of_updates[server], from, class, at - update->begin);
    at += update->step;
    tell_rest(p, entry,
              (SimSpan){.class = class,
                        .term = COST_update,
                        .begin = at,
                        .end = at + copies});
    at += copies;
  }
  tell_wait(p, entry, class, at, price->classes[class].step);
}

static void tell_all(const ServersPricing *p, const Price *price) {
  int n = price->n_classes - p->of->n;
  for (int c = 0; c < n; c++) {
    const PriceClass *alone = &p->workers.classes[c];
    tell_class(p, &p->of_workers, c, c, -alone->begin);
    tell_wait(p, p->of->workers.entry, c, alone->step, price->classes[c].step);
  }
  for (int s = 0; s < p->of->n; s++) tell_server(p, price, s, n + s);
}

/* ---- programs ---- */

static Price price_alone(ServersPricing *p, PriceProgram program,
                         const CostModel *model, Spans *spans) {
  spans->arena = p->arena;
  return price_programs(p->arena, &program, 1, model, p->slice,
                        p->tell ? keep_span : NULL, spans);
}

static void find_programs(ServersPricing *p, const CostModel *model) {
  const PricedServers *of = p->of;
  p->workers = price_alone(p, of->workers, model, &p->of_workers);
  p->updates = ARENA_ARRAY(p->arena, const Price *, of->n);
  p->of_updates = ARENA_ARRAY(p->arena, Spans, of->n);
  for (int s = 0; s < of->n; s++) {
    PriceProgram update = {of->servers[s].update, {of->workers.ranks.n, of->n}};
    Price price = price_alone(p, update, model, &p->of_updates[s]);
    p->updates[s] = arena_copy(p->arena, &price, sizeof price);
  }
}

/* Without the part of servers a message takes no time, as without its own. */
static const CostModel *models_of(Arena *arena, const CostModel *model,
                                  const ClusterSlice *slice) {
  CostModel changed = *model;
  changed.without &= ~((uint32_t)1 << COST_message);
  if (!cost_counts(model, COST_server))
    changed.without |= (uint32_t)1 << COST_message;
  return price_models(arena, &changed, slice);
}

Price price_servers(Arena *arena, const PricedServers *servers,
                    const CostModel *model, const ClusterSlice *slice,
                    SimTell *tell, void *user) {
  ServersPricing p = {.arena = arena,
                      .tell = tell,
                      .user = user,
                      .of = servers,
                      .slice = slice,
                      .models = models_of(arena, model, slice),
                      .queue = {.workers = (int)servers->workers.ranks.n,
                                .servers = servers->n,
                                .staleness = servers->staleness}};
  find_programs(&p, model);
  find_times(&p);
  find_links(&p, cost_counts(model, COST_contention));
  find_messages(&p);
  server_queue_clocks(arena, &p.queue, p.clocks);
  Price price = p.workers;
  price.step = rounded(harmonic_mean(p.clocks, p.queue.workers));
  find_loads(&p, price.step);
  if (p.loads.service > price.step) price.step = p.loads.service;
  price.sent += pushed(&p);
  find_classes(&p, &price);
  find_parts(&p, &price);
  p.loads.compute = price.step - price.parts[COST_server];
  price.servers = arena_copy(arena, &p.loads, sizeof p.loads);
  if (tell) tell_all(&p, &price);
  return price;
}
