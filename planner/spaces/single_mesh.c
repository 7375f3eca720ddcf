/*
 * single_mesh.c -- yields the written mesh, or all meshes of one or two axes on
 * all ranks.
 *
 *     8 ranks     2 x 4, 4 x 2, 8
 */
#include "planner/space.h"
#include "planner/spaces/spaces.h"

static const Mesh *make_mesh(Arena *arena, int64_t outer, int64_t inner) {
  static const char *const names[] = {"outer", "inner"};
  Mesh *mesh = ARENA_NEW(arena, Mesh);
  int64_t sizes[] = {outer, inner};
  for (int i = 0; i < 2; i++)
    if (sizes[i] > 1)
      mesh->axes[mesh->n_axes++] =
          (MeshAxis){.name = names[i], .size = (int32_t)sizes[i]};
  return mesh;
}

void single_mesh_places(const SpaceRequest *r, const SpaceInfo *space,
                        VisitPlace *visit, void *user) {
  SpacePlace place = {.space = space};
  if (r->pins && pins_have_mesh(r->pins)) {
    place.mesh = pinned_mesh(r->arena, r->pins, r->ranks);
    if (place.mesh) visit(user, &place);
    return;
  }
  for (int64_t outer = 1; outer <= r->ranks; outer++) {
    if (r->ranks % outer != 0 || (outer == 1 && r->ranks > 1)) continue;
    place.mesh = make_mesh(r->arena, outer, r->ranks / outer);
    visit(user, &place);
  }
}

const UnitTables *single_mesh_tables(Arena *arena, const SpaceRequest *r,
                                     const SpacePlace *place,
                                     int64_t microbatches, int batch_axes) {
  bool has_lines = r->pins && r->pins->shards.n + r->pins->of_paths.n > 0;
  TableRequest request = {
      .loads = {.units = r->units,
                .mesh = place->mesh,
                .slice = r->slice,
                .model = r->model,
                .microbatches = microbatches,
                .chains = r->chains},
      .batch_axes = batch_axes,
      .pads_little = true,
      .pins = has_lines ? unit_pins_of(arena, r->units, r->pins, place->mesh)
                        : NULL};
  return unit_tables(arena, &request);
}
