/*
 * stage_meshes.c -- finds the meshes of stages that have their own.
 *
 *     mesh { data = auto }
 *     stage 0: a on 0..3 as (tensor = 4)     tensor 4
 *     stage 1: b on 4..6                     data 3: `auto` is of the stage
 *     stage 2: c on 7                        one rank
 */
#include "ir/plan/pins.h"

bool pins_have_stage_meshes(const Pins *pins) {
  for (int i = 0; i < pins->stages.n; i++)
    if (pins->stages.data[i].has_mesh || pins->stages.data[i].stage.n_ranks !=
                                             pins->stages.data[0].stage.n_ranks)
      return true;
  return false;
}

static bool check_ranks(Module *module, const PinStage *line) {
  int ranks = mesh_ranks(&line->stage.mesh);
  if (ranks == line->stage.n_ranks) return true;
  Span span = line->has_mesh ? line->mesh_span : line->stage.span;
  Diag *d = diag(module->diags, DIAG_stage_mesh, span, (long long)line->number,
                 line->stage.n_ranks, ranks);
  if (!line->has_mesh)
    diag_help(d, "give the stage a mesh of its own, as in 'as (data = %d)'",
              line->stage.n_ranks);
  return false;
}

/* Stages on the same ranks pass their values on without a message. */
static bool check_alike(Module *module, const Pins *pins, int at) {
  const PinStage *line = &pins->stages.data[at];
  for (int i = 0; i < at; i++) {
    const PinStage *other = &pins->stages.data[i];
    if (other->stage.first_rank != line->stage.first_rank ||
        stage_meshes_equal(&line->stage.mesh, &other->stage.mesh))
      continue;
    Diag *d = diag(module->diags, DIAG_not_supported, line->stage.span,
                   "stages on the same ranks with different meshes");
    diag_note(d, other->stage.span, "the other stage is here");
    return false;
  }
  return true;
}

/* The axes of the block come first, then those that stages add. */
static void join_meshes(const Pins *pins, const Mesh *of_lines, Mesh *out) {
  *out = (Mesh){0};
  for (int i = 0; i < pins->axes.n; i++) {
    MeshAxis axis = {.name = pins->axes.data[i].name, .size = 1};
    for (int k = 0; k < pins->stages.n; k++) {
      int at = mesh_find(&of_lines[k], axis.name);
      if (at >= 0 && of_lines[k].axes[at].size > axis.size)
        axis.size = of_lines[k].axes[at].size;
    }
    if (axis.size > 1) out->axes[out->n_axes++] = axis;
  }
}

bool pins_close_stage_meshes(Module *module, const Pins *pins, Mesh *out,
                             Mesh *out_of_lines, bool *out_differ) {
  RankGroups groups;
  if (!pins_count_groups(module, pins, &groups)) return false;
  for (int i = 0; i < pins->stages.n; i++) {
    PinStage *line = &pins->stages.data[i];
    if (line->stage.n_ranks == 0) {
      diag(module->diags, DIAG_stage_mesh_ranks, line->stage.span,
           (long long)line->number);
      return false;
    }
    if (!line->has_mesh &&
        !pins_close_axes(module, pins, line->stage.n_ranks, &line->stage.mesh))
      return false;
    if (!check_ranks(module, line) || !check_alike(module, pins, i))
      return false;
    out_of_lines[i] = line->stage.mesh;
  }
  join_meshes(pins, out_of_lines, out);
  *out_differ = false;
  for (int i = 0; i < pins->stages.n; i++)
    *out_differ |= !stage_meshes_equal(&out_of_lines[i], &out_of_lines[0]);
  if (!*out_differ) *out = out_of_lines[0];
  return true;
}
