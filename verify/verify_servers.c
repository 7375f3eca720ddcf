/*
 * verify_servers.c -- plays a step of a plan with servers of parameters that
 * wait for all workers: the program of the workers, then those of the servers.
 *
 *     workers   %7 = dot ...; output push "w:0" %7     on all ranks
 *     push      the sum over workers, in their order
 *     server    input push "w:0"; output param "w"
 *     reply     a copy, into the parameter of each worker
 *
 * Messages go from an output to the input of the same path, as the runtime
 * finds them (runtime/rank/servers.c).  Of a table that is divided a server has
 * rows, padded to as many as the others.  Each output of a server is compared
 * with that of the reference, or with its rows.
 */
#include "verify/verify_servers.h"

#include <string.h>

/* ---- links ---- */

static int find_output(const Graph *graph, Role role, Name path) {
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == role &&
        graph->outputs.data[i].path == path)
      return i;
  return -1;
}

static int find_input(const Graph *graph, Role role, Name path) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == role &&
        graph->inputs.data[i].path == path)
      return i;
  return -1;
}

static void add_pushes(Arena *arena, VerifyServers *links, const Graph *worker,
                       const Graph *server, int number) {
  for (int i = 0; i < server->inputs.n; i++) {
    const GraphInput *input = &server->inputs.data[i];
    if (input->role != ROLE_push) continue;
    VerifyPush push = {.server = number,
                       .from_output =
                           find_output(worker, ROLE_push, input->path),
                       .to_input = i};
    int n = mesh_ranks(&worker->mesh);
    for (int w = 0; w < n; w++) vec_push(arena, &push.workers, w);
    vec_push(arena, &links->pushes, push);
  }
}

static void add_replies(Arena *arena, VerifyServers *links, const Graph *worker,
                        const Graph *server, int number) {
  for (int i = 0; i < server->outputs.n; i++) {
    const GraphOutput *output = &server->outputs.data[i];
    int input = find_input(worker, output->role, output->path);
    if (output->role == ROLE_norm || input < 0) continue;
    vec_push(arena, &links->replies, (VerifyReply){number, i, input});
  }
}

VerifyServers *verify_servers(Arena *arena, const StageGraphs *graphs) {
  VerifyServers *links = ARENA_NEW(arena, VerifyServers);
  const Graph *worker = graphs->graphs.data[0];
  for (int s = 1; s < graphs->graphs.n; s++) {
    add_pushes(arena, links, worker, graphs->graphs.data[s], s - 1);
    add_replies(arena, links, worker, graphs->graphs.data[s], s - 1);
  }
  return links;
}

/* The rows of a server have no size that follows from that of the table. */
bool verify_servers_divide(const StageGraphs *graphs) {
  const Graph *worker = graphs->graphs.data[0];
  for (int s = 1; s < graphs->graphs.n; s++) {
    const Graph *server = graphs->graphs.data[s];
    for (int i = 0; i < server->inputs.n; i++) {
      const GraphInput *input = &server->inputs.data[i];
      const GraphInput *copy =
          graph_find_input(worker, input->role, input->path);
      if (copy && input->role == ROLE_param &&
          !type_same_shape(graph_type(server, input->value),
                           graph_type(worker, copy->value)))
        return true;
    }
  }
  return false;
}

/* ---- rows ---- */

/* Where the elements of a server lie in a tensor of the workers, rows
 * outermost; `n` of them are there, and the rest is padding. */
typedef struct Rows {
  int64_t at, n;
} Rows;

static Rows rows_of(int server, int64_t own, int64_t all) {
  if (own == all) return (Rows){0, all};
  int64_t at = server * own, left = all - at;
  return (Rows){at, left < 0 ? 0 : left < own ? left : own};
}

static void copy_elements(const Numbers *numbers, DType dtype, Tensor *to,
                          int64_t to_at, const Tensor *from, int64_t from_at,
                          int64_t n) {
  if (n > 0)
    numbers_copy(numbers, dtype,
                 numbers_at(numbers, dtype, tensor_array(to), to_at),
                 numbers_at(numbers, dtype, tensor_array(from), from_at), n);
}

/* Padding is compared with itself. */
Tensor verify_rows(VerifyRun *v, const PlayClass *class, int output,
                   const Tensor *wanted, Arena *arena) {
  Tensor rows = player_read(class->player, output, 0, arena);
  Rows own = rows_of(class->index - 1, type_elements(rows.type),
                     type_elements(wanted->type));
  copy_elements(&v->numbers, rows.type->dtype, &rows, 0, wanted, own.at, own.n);
  return rows;
}

Tensor verify_first_rows(VerifyRun *v, const PlayClass *class, const Type *type,
                         const Tensor *whole, Arena *arena) {
  Tensor rows = numbers_create(&v->numbers, arena, type);
  int64_t n = type_elements(type);
  Rows own = rows_of(class->index - 1, n, type_elements(whole->type));
  numbers_fill(&v->numbers, type->dtype, tensor_array(&rows), n, 0);
  copy_elements(&v->numbers, type->dtype, &rows, 0, whole, own.at, own.n);
  return rows;
}

/* ---- messages ---- */

/* The sum, in the order of the push; NULL: no worker sends it. */
static Tensor *sum_of_workers(VerifyRun *v, Player *workers,
                              const VerifyPush *push, Arena *arena) {
  Tensor *sum = NULL;
  for (int i = 0; i < push->workers.n && push->from_output >= 0; i++) {
    Tensor own =
        player_read(workers, push->from_output, push->workers.data[i], arena);
    if (sum)
      numbers_reduce(&v->numbers, sum->type->dtype, REDUCE_sum,
                     tensor_array(sum), tensor_array(&own),
                     type_elements(sum->type));
    else
      sum = arena_copy(arena, &own, sizeof own);
  }
  return sum;
}

static void send_push(VerifyRun *v, const PlayClass *classes,
                      const VerifyPush *push) {
  Arena *scratch = arena_beside(v->arena);
  const PlayClass *to = &classes[1 + push->server];
  const Graph *server = to->of->entry.stages.data[0].graph;
  const Type *type =
      graph_type(server, server->inputs.data[push->to_input].value);
  Tensor *sum = sum_of_workers(v, classes[0].player, push, scratch);
  Tensor own = numbers_create(&v->numbers, scratch, type);
  int64_t n = type_elements(type);
  numbers_fill(&v->numbers, type->dtype, tensor_array(&own), n, 0);
  if (sum) {
    Rows rows = rows_of(push->server, n, type_elements(sum->type));
    copy_elements(&v->numbers, type->dtype, &own, 0, sum, rows.at, rows.n);
  }
  player_select(to->player, 0);
  player_write(to->player, push->to_input, &own);
  arena_destroy(scratch);
}

/* Workers keep the rows that other servers have. */
static void send_reply(VerifyRun *v, const PlayClass *classes,
                       const VerifyReply *reply) {
  Arena *scratch = arena_beside(v->arena);
  const PlayClass *from = &classes[1 + reply->server];
  Player *workers = classes[0].player;
  player_select(from->player, 0);
  player_select(workers, 0);
  Tensor made = player_read(from->player, reply->from_output, 0, scratch);
  Tensor copy = player_save(workers, reply->to_input, scratch);
  Rows rows = rows_of(reply->server, type_elements(made.type),
                      type_elements(copy.type));
  copy_elements(&v->numbers, copy.type->dtype, &copy, rows.at, &made, 0,
                rows.n);
  player_write(workers, reply->to_input, &copy);
  arena_destroy(scratch);
}

/* An evaluation of the workers reads them. */
static void send_averages(VerifyRun *v, const PlayClass *class) {
  Player *player = class->player;
  const Graph *graph = class->of->entry.stages.data[0].graph;
  player_select(player, 0);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (output->role != ROLE_ema) continue;
    const Tensor *first = map_get(v->initial.by_path[ROLE_ema], output->path);
    Tensor *copy = map_get(v->averages, output->path);
    Tensor made = player_read(player, i, 0, v->arena);
    if (!copy) {
      copy = ARENA_NEW(v->arena, Tensor);
      *copy = numbers_create(&v->numbers, v->arena, first->type);
      map_put(v->averages, output->path, copy);
    }
    Rows rows = rows_of(class->index - 1, type_elements(made.type),
                        type_elements(copy->type));
    copy_elements(&v->numbers, copy->type->dtype, copy, rows.at, &made, 0,
                  rows.n);
  }
}

void verify_write_averages(VerifyRun *v, const PlayClass *class, int stage) {
  const Graph *graph = class->of->entry.stages.data[stage].graph;
  if (!v->averages || class->index > 0) return;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Tensor *made =
        input->role == ROLE_ema ? map_get(v->averages, input->path) : NULL;
    if (made) player_write(class->player, i, made);
  }
}

void verify_play_servers(VerifyRun *v, const PlayClass *classes,
                         Player *const *players, const VerifyStep *step) {
  const VerifyServers *links = step->servers;
  player_run(players[0]);
  for (int i = 0; i < links->pushes.n; i++)
    send_push(v, classes, &links->pushes.data[i]);
  players_run_servers(players + 1, v->steps->n_classes - 1);
  for (int i = 0; i < links->replies.n; i++)
    send_reply(v, classes, &links->replies.data[i]);
  if (!v->averages) v->averages = map_create(v->arena);
  for (int k = 1; k < v->steps->n_classes; k++) send_averages(v, &classes[k]);
}
