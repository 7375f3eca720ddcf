/*
 * spaces.h -- declares the table of spaces: where the units of a program may
 * be.
 *
 *     place     a mesh of all ranks; or a cut, and a mesh for either side
 *     tables    the loads of all units and edges in a place, by assignment
 *
 * A space yields places and makes their tables.  The search knows nothing else
 * of it: it walks over micro-batches, ZeRO and recomputation in each place, and
 * eliminates over the tables.
 */
#ifndef PLANNER_SPACES_SPACES_H
#define PLANNER_SPACES_SPACES_H

#include "planner/unit_tables.h"

typedef struct SpaceRequest {
  Arena *arena; /* has the places */
  const Units *units;
  const ClusterSlice *slice;
  const CostModel *model;
  int64_t ranks;
  const Pins *pins;   /* or NULL */
  MeshChains *chains; /* of its places, or NULL */
} SpaceRequest;

typedef struct SpaceInfo SpaceInfo;
typedef struct SpacePlace {
  const SpaceInfo *space;
  const Mesh *mesh;
  const void *own; /* of the space */
} SpacePlace;

typedef void VisitPlace(void *user, const SpacePlace *place);
typedef void SpacePlaces(const SpaceRequest *request, const SpaceInfo *space,
                         VisitPlace *visit, void *user);
/* Returns NULL if some unit cannot be assigned. */
typedef const UnitTables *SpaceTables(Arena *arena, const SpaceRequest *request,
                                      const SpacePlace *place,
                                      int64_t microbatches, int batch_axes);

struct SpaceInfo {
  const char *name;
  SpacePlaces *places;
  SpaceTables *tables;
  const char *meaning;
};

/* ---- spaces.c ---- */

/* Visits the places of all spaces that are given, one space after the other. */
void spaces_visit(const SpaceInfo *spaces, int n, const SpaceRequest *request,
                  VisitPlace *visit, void *user);
/* Returns the rows of spaces.def. */
const SpaceInfo *spaces_all(int *out_n);

#define SPACE(name, places, tables, meaning)                                   \
  SpacePlaces places;                                                          \
  SpaceTables tables;
#include "planner/spaces/spaces.def"

#endif
