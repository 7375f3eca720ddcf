/*
 * decode.c -- the entry points that sample a text: prefill, decode and
 * decode_init.
 *
 * prefill computes the net over a window of tokens.  Where the net allows it,
 * decode computes one token and reads what earlier ones left in decode caches.
 * The caches have the dtypes that the passes over decode choose, so prefill,
 * which fills them, and decode_init are completed after these passes.
 *
 * Where parameters are sharded, the caches are as the lines of the plan about
 * their dims say, but for the batch: heads that are sharded have sharded keys
 * and values.  Where the plan has stages, the stage that computes keys and
 * values has their cache, in all three entry points.
 */
#include "driver/internal.h"

/* The net at one token; false where the net does not allow it. */
static bool split_decode(const Compilation *c, DecodeGraphs *out) {
  Text why = text_create(c->module->arena);
  PassContext ctx = driver_pass_context(c, NULL);
  bool can = decode_split(&ctx, c->model->prefill, out, &why);
  arena_destroy(ctx.scratch);
  if (!can && c->options->explains_windows)
    diag(c->module->diags, DIAG_full_windows, SPAN_NONE, text_string(&why));
  return can;
}

static DecodeFinish finish_decode(const Compilation *c,
                                  const DecodeGraphs *graphs,
                                  const StageGraphs *decode) {
  PassContext ctx = driver_pass_context(c, NULL);
  CompiledDecode compiled = {decode->graphs.data, decode->graphs.n,
                             decode->decode_init};
  DecodeFinish finish =
      decode_finish(&ctx, c->model->prefill, graphs, &compiled);
  arena_destroy(ctx.scratch);
  return finish;
}

bool driver_add_decoding(Compilation *c) {
  Purpose purpose = c->options->purpose;
  bool is_wanted = purpose == PURPOSE_train || purpose == PURPOSE_sample;
  DecodeGraphs graphs;
  StageGraphs decode;
  if (!is_wanted || !c->model->prefill) return true;
  if (c->options->has_whole_windows || !split_decode(c, &graphs))
    return driver_add_entry_point(c, ENTRY_prefill);
  if (!driver_add_graph(c, ENTRY_decode, graphs.step, &decode)) return false;
  DecodeFinish finish = finish_decode(c, &graphs, &decode);
  return driver_add_graph(c, ENTRY_prefill, finish.prefill, NULL) &&
         driver_add_graph(c, ENTRY_decode_init, finish.decode_init, NULL);
}

Graph *driver_graph(const Compilation *c, EntryPointId id) {
  DecodeGraphs graphs;
  if (!entry_point_info(id)->is_derived)
    return driver_model_graph(c->model, id);
  if (!c->model->prefill || !split_decode(c, &graphs)) return NULL;
  if (id == ENTRY_decode) return graphs.step;
  StageGraphs decode;
  return driver_compile_stages(c, ENTRY_decode, graphs.step, 0, &decode)
             ? finish_decode(c, &graphs, &decode).decode_init
             : NULL;
}
