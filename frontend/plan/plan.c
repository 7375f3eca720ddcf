/*
 * plan.c -- makes one Plan of the `mesh` and `plan` blocks of a plan file or of
 * the model, and of the options of the command line.
 *
 *     mesh { node = 2; data = 2 }        --ranks 4 --microbatches 2
 *     plan {                             is   mesh { data = 4 }
 *       microbatches = 2                      plan { microbatches = 2
 *       shard B over (node, data)                    shard B over data }
 *     }
 *
 * The lines become Pins (read.h).  A search for what they leave open does not
 * exist yet: `plan_close` takes the defaults.
 */
#include "frontend/plan/plan.h"
#include "frontend/plan/read.h"

#include <string.h>

/* ---- where the lines come from ---- */

/* A file is for this net.  A model may have plans of its other nets. */
static void report_other(PinReader *r, const Item *item) {
  if (!r->request->file && map_has(r->e->program->nets, item->name)) return;
  Diag *d = diag(r->e->diags, DIAG_plan_other, item->name_span, item->name,
                 r->model->name);
  diag_help(d, "'plan { ... }', without a name, is for any net");
}

static void plan_add_block(PinReader *r, const Item *item, const Item **mesh) {
  if (item->kind != ITEM_plan) {
    if (strcmp(item->block, "mesh") == 0) *mesh = item;
    return;
  }
  if (!item->name || item->name == r->model->name)
    vec_push(r->e->arena, &r->blocks, item);
  else
    report_other(r, item);
}

/* Those of the file; NULL mesh: it has none. */
static const Item *plan_read_file(PinReader *r) {
  Elab *e = r->e;
  const Item *mesh = NULL;
  const Ast *ast = ast_parse(e->arena, e->names, e->diags, r->request->file);
  machines_check(e->arena, e->diags, ast);
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    bool is_block = item->kind == ITEM_block;
    bool is_known = item->kind == ITEM_plan ||
                    (is_block && (strcmp(item->block, "mesh") == 0 ||
                                  strcmp(item->block, "certificate") == 0));
    if (!is_known) {
      diag(e->diags, DIAG_plan_item, item->span);
    } else if (is_block && mesh && strcmp(item->block, "mesh") == 0) {
      Diag *d = diag(e->diags, DIAG_block_twice, item->name_span, "mesh");
      diag_note(d, mesh->name_span, "it is given here first");
    } else {
      plan_add_block(r, item, &mesh);
    }
  }
  return mesh;
}

static const Item *read_model(PinReader *r) {
  const Program *program = r->e->program;
  const Item *mesh = program_block(program, "mesh"), *none = NULL;
  for (int i = 0; i < program->plans.n; i++)
    plan_add_block(r, program->plans.data[i], &none);
  return mesh;
}

/* ---- pins ---- */

/* The tensors of generic layers, to which lines reach by other names. */
static void add_tensors(PinReader *r) {
  const Map *params = r->walk->params;
  for (int i = 0; i < map_size(params); i++) {
    const Param *param = map_value_at(params, i);
    vec_push(
        r->e->arena, &r->pins->tensors,
        (PinTensor){map_key_at(params, i), param->type, param->stands_for});
  }
}

/* Lines are checked on the mesh without a search, whose sizes must follow. */
static bool read_counts(PinReader *r) {
  Pins *pins = r->pins;
  if (!reader_read_ranks(r) || !pins_close_mesh(r->e->module, pins, &r->mesh) ||
      !reader_read_microbatches(r))
    return false;
  bool is_parallel = mesh_ranks(&r->mesh) > 1 || pins->microbatches.value > 1;
  if (!is_parallel || r->model->has_train) return true;
  diag(r->e->diags, DIAG_plan_needs_train,
       mesh_ranks(&r->mesh) > 1 || !r->blocks.n ? pins->mesh_span
                                                : r->blocks.data[0]->span);
  return false;
}

/* All that was written; NULL after a message. */
static Pins *read_pins(PinReader *r, const Item *mesh, Name batch_dim) {
  Pins *pins = r->pins = ARENA_NEW(r->e->arena, Pins);
  pins->model = r->model->name;
  pins->batch_dim = batch_dim;
  if (r->model->has_train) pins->batch = r->model->settings.batch;
  reader_read_mesh(r, mesh);
  if (diags_errors(r->e->diags) > 0 || !read_counts(r)) return NULL;
  reader_read_annotations(r);
  reader_read_lines(r);
  if (r->request->bucket_bytes > 0)
    pins->bucket_bytes = (PinNumber){true, r->request->bucket_bytes, SPAN_NONE};
  add_tensors(r);
  return diags_errors(r->e->diags) > 0 ? NULL : pins;
}

Plan *plan_read(Elab *e, const Model *model, const Elab *walk,
                const Graph *graph, Name batch_dim) {
  PlanRequest request = e->program->options->plan;
  PinReader r = {.e = e,
                 .model = model,
                 .graph = graph,
                 .walk = walk,
                 .request = &request};
  const Item *mesh = request.file ? plan_read_file(&r) : read_model(&r);
  if (diags_errors(e->diags) > 0) return NULL;
  bool has_pins =
      mesh || r.blocks.n > 0 || (walk && reader_annotations_ask(walk));
  if (!has_pins && request.ranks == 0) request.ranks = request.usual_ranks;
  bool asks = has_pins || request.ranks > 1 || request.microbatches > 1;
  if (!asks || !graph) return NULL;
  PlanPaths *paths =
      plan_paths_create(e->module, graph, walk->aliases.data, walk->aliases.n);
  r.paths = (PathReader){e, model, graph, paths};
  const Pins *pins = read_pins(&r, mesh, batch_dim);
  Plan *plan = pins ? plan_close(e->module, pins) : NULL;
  if (!plan) return NULL;
  plan_check_lines(e, paths, plan);
  plan_make_lines(e->module, paths, plan);
  return plan;
}
