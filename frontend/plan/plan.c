/*
 * plan.c -- reads the `mesh` and `plan` blocks of a plan file or of the model
 * as Pins.
 *
 *     mesh { node = 2; data = auto }     two axes, of which one is open
 *     plan {
 *       microbatches = 2
 *       shard B over (node, data)        a line about names
 *     }
 *
 * Names, paths and dims are checked here.  Sizes may be open, so what depends
 * on them is checked where a plan is made of the pins (ir/plan/plan_check.c).
 */
#include "frontend/plan/machines.h"
#include "frontend/plan/plan.h"
#include "frontend/plan/read.h"

#include <string.h>

struct PlanReader {
  Elab *e;
  const Model *model;
  const Elab *walk;
  const Graph *graph;
  Name batch_dim;
  PlanPaths *paths; /* NULL until a line names one */
};

/* ---- lines that are left out ---- */

static void leave_out(const PlanSource *from, Ast *ast) {
  for (int i = 0; i < ast->n_items; i++) {
    Item *item = &ast->items[i];
    int n = 0;
    for (int k = 0; item->kind == ITEM_plan && k < item->n_pins; k++)
      if (!reader_leaves_out(from, item->pins[k].span))
        item->pins[n++] = item->pins[k];
    if (item->kind == ITEM_plan) item->n_pins = n;
  }
}

/* ---- where the lines come from ---- */

/* A file is for this net.  A model may have plans of its other nets. */
static void report_other(PinReader *r, const Item *item) {
  if (!r->is_file && map_has(r->e->tree->nets, item->name)) return;
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
static const Item *plan_read_file(PinReader *r, const PlanSource *from) {
  Elab *e = r->e;
  const Item *mesh = NULL;
  Ast *ast = ast_parse(e->arena, e->names, e->diags, from->file);
  leave_out(from, ast);
  machines_check(e->arena, e->diags, ast);
  r->certificate = certificate_read(e->arena, ast);
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
  const SourceTree *tree = r->e->tree;
  const Item *mesh = source_tree_block(tree, "mesh"), *none = NULL;
  for (int i = 0; i < tree->plans.n; i++)
    plan_add_block(r, tree->plans.data[i], &none);
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

static Span first_block(const PinReader *r) {
  return r->blocks.n ? r->blocks.data[0]->span : SPAN_NONE;
}

/* Lines and annotations name paths, which takes a look at the graph. */
static void read_lines(PlanReader *plans, PinReader *r,
                       const PlanSource *from) {
  if (!plans->paths)
    plans->paths =
        plan_paths_create(plans->e->module, plans->graph,
                          plans->walk->aliases.data, plans->walk->aliases.n);
  r->paths = (PathReader){r->e, plans->model, plans->graph, plans->paths};
  r->pins->paths = plans->paths;
  reader_read_annotations(r, from);
  reader_read_lines(r);
  reader_add_annotated_stages(r, from);
}

/* `e`: of the reader, with diags of the caller. */
static Pins *read_pins(PlanReader *plans, Elab *e, const PlanSource *from) {
  PinReader r = {.e = e,
                 .model = plans->model,
                 .graph = plans->graph,
                 .walk = plans->walk,
                 .is_file = from->file != NULL};
  const Item *mesh = from->file ? plan_read_file(&r, from) : read_model(&r);
  if (diags_errors(e->diags) > 0) return NULL;
  Pins *pins = r.pins = ARENA_NEW(e->arena, Pins);
  pins->model = plans->model->name;
  pins->has_train = plans->model->has_train;
  pins->batch_dim = plans->batch_dim;
  if (pins->has_train) pins->batch = plans->model->settings.batch;
  pins->certificate = r.certificate;
  pins->block_span = first_block(&r);
  pins->is_given =
      mesh || r.blocks.n > 0 || reader_annotations_ask(plans->walk);
  reader_read_mesh(&r, mesh);
  reader_add_stage_axes(&r);
  if (diags_errors(e->diags) > 0) return NULL;
  if (pins->is_given || plans->walk->pinned.n > 0) read_lines(plans, &r, from);
  add_tensors(&r);
  return diags_errors(e->diags) > 0 ? NULL : pins;
}

Pins *frontend_read_plan(PlanReader *plans, const PlanSource *from,
                         Diags *diags) {
  Module module = *plans->e->module;
  Elab e = *plans->e;
  module.diags = e.diags = diags;
  e.module = &module;
  return read_pins(plans, &e, from);
}

PlanReader *plan_reader_create(Elab *e, const Model *model, const Elab *walk,
                               const Graph *graph, Name batch_dim) {
  PlanReader *plans = ARENA_NEW(e->arena, PlanReader);
  *plans = (PlanReader){e, model, walk, graph, batch_dim, NULL};
  return plans;
}
