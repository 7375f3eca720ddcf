/*
 * logical.c -- reads logical tensors on rank 0 while the ranks that own their
 * shards send what is asked for, a block at a time, so that no rank needs
 * memory for more than its own shards.
 *
 *     rank 0                       an owner
 *     request {tensor, range}  ->
 *                              <-  the elements of the range that it holds,
 *                                  packed in the order of the logical tensor
 *     ... and in the end
 *     request {no tensor}      ->  leaves logical_serve
 *
 * Rank 0 knows what each owner holds of a range (runs.c), so an answer has no
 * header, and only the owners of the range hear of it.  Where owners hold terms
 * of a sum, rank 0 adds them up, in ascending order.
 */
#include "runtime/params/params.h"

#include <string.h>

enum { BLOCK = 1 << 20 }; /* bytes of a range */

typedef struct Request {
  int64_t tensor;    /* index in the program; -1: the end */
  int64_t from, end; /* logical elements */
} Request;

struct LogicalReader {
  const DnnProgram *program;
  Comm *comm; /* NULL: a single rank */
  Device *device;
  unsigned char *packed;   /* BLOCK bytes of one owner */
  const DnnTensor *tensor; /* whose owners these are */
  int *owners, n_owners;
};

LogicalReader *logical_reader_create(Arena *arena, const DnnProgram *program,
                                     Comm *comm, Device *device) {
  bool is_alone = !comm || comm->world == 1;
  LogicalReader *reader = ARENA_NEW(arena, LogicalReader);
  *reader = (LogicalReader){
      .program = program, .comm = is_alone ? NULL : comm, .device = device};
  if (is_alone) return reader;
  reader->packed = ARENA_ARRAY(arena, unsigned char, BLOCK);
  reader->owners = ARENA_ARRAY(arena, int, comm->world);
  return reader;
}

static bool holds_some(const DnnTensor *tensor, int rank, int64_t from,
                       int64_t end) {
  TensorRun run;
  return tensor_next_run(tensor, rank, from, end, &run);
}

/* The elements of a range that rank `owner` holds, packed. */
static Status ask_owner(LogicalReader *reader, const Request *request,
                        int owner, int64_t bytes) {
  Comm *comm = reader->comm;
  Request asked = *request;
  if (owner == comm->rank)
    return shard_read(reader->device, reader->tensor, request->from,
                      request->end, reader->packed, &bytes);
  TRY(comm->transfer(comm, &asked, sizeof asked, comm->rank, owner));
  return comm->transfer(comm, reader->packed, bytes, owner, comm->rank);
}

static int64_t held_bytes(const DnnTensor *tensor, int rank, int64_t from,
                          int64_t end) {
  int64_t n = 0;
  TensorRun run;
  while (tensor_next_run(tensor, rank, from, end, &run)) {
    n += run.n;
    from = run.logical + run.n;
  }
  return n * dtype_bytes(tensor->dtype);
}

/* A range of at most BLOCK bytes. */
static Status read_range(LogicalReader *reader, const Request *request,
                         unsigned char *to) {
  const DnnTensor *tensor = reader->tensor;
  int64_t n = request->end - request->from;
  if (tensor->terms) memset(to, 0, (size_t)(n * dtype_bytes(tensor->dtype)));
  for (int i = 0; i < reader->n_owners; i++) {
    int owner = reader->owners[i];
    if (!holds_some(tensor, owner, request->from, request->end)) continue;
    TRY(ask_owner(reader, request, owner,
                  held_bytes(tensor, owner, request->from, request->end)));
    if (tensor->terms)
      shard_add(tensor, owner, request->from, request->end, to, reader->packed);
    else
      shard_copy(tensor, owner, request->from, request->end, to, reader->packed,
                 true);
  }
  return STATUS_OK;
}

Status logical_read(LogicalReader *reader, const DnnTensor *tensor, int64_t at,
                    void *to, int64_t n) {
  bool is_here = !reader->comm || tensor_is_held(tensor, reader->comm->rank);
  if (is_here && !tensor->terms && !tensor_is_sharded(tensor))
    return reader->device->read(reader->device, tensor->offset + at, to, n);
  int64_t item = dtype_bytes(tensor->dtype);
  ASSERT(at % item == 0 && n % item == 0);
  if (reader->tensor != tensor)
    reader->n_owners =
        tensor_owners(tensor, reader->comm->world, reader->owners);
  reader->tensor = tensor;
  for (int64_t done = 0; done < n; done += BLOCK) {
    int64_t here = n - done < BLOCK ? n - done : BLOCK;
    Request request = {.tensor = tensor - reader->program->tensors,
                       .from = (at + done) / item,
                       .end = (at + done + here) / item};
    TRY(read_range(reader, &request, (unsigned char *)to + done));
  }
  return STATUS_OK;
}

Status logical_end(LogicalReader *reader) {
  Comm *comm = reader->comm;
  Request end = {.tensor = -1};
  for (int rank = 1; comm && rank < comm->world; rank++)
    TRY(comm->transfer(comm, &end, sizeof end, 0, rank));
  return STATUS_OK;
}

Status logical_serve(LogicalReader *reader) {
  Comm *comm = reader->comm;
  for (;;) {
    Request request = {0};
    int64_t bytes;
    TRY(comm->transfer(comm, &request, sizeof request, 0, comm->rank));
    if (request.tensor < 0) return STATUS_OK;
    TRY(shard_read(reader->device, &reader->program->tensors[request.tensor],
                   request.from, request.end, reader->packed, &bytes));
    TRY(comm->transfer(comm, reader->packed, bytes, comm->rank, 0));
  }
}
