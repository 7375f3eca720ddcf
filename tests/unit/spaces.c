// links: planner driver codegen frontend passes price runtime ir support
/*
 * spaces.c -- adds a space of two halves to the table of spaces, and compares
 * the search in each place of both with a walk over all assignments.
 *
 *     unit 0  unit 1 | unit 2      the first half of the ranks has units 0 and
 *                                  1, the second half has unit 2
 *
 * Two programs do not run yet, so halves are priced by tables alone.
 */
#include "driver/trial.h"
#include "planner/propose.h"
#include "tests/unit/values.h"

TestSuite(spaces, .fini = modules_destroy);

enum { RANKS = 8 };

/* ---- the space of two halves ---- */

static void two_halves_places(const SpaceRequest *r, const SpaceInfo *space,
                              VisitPlace *visit, void *user) {
  for (int cut = 1; cut < r->units->units.n; cut++) {
    Mesh *half = ARENA_NEW(r->arena, Mesh);
    half->axes[half->n_axes++] =
        (MeshAxis){.name = "half", .size = (int32_t)r->ranks / 2};
    SpacePlace place = {space, half, arena_copy(r->arena, &cut, sizeof cut)};
    visit(user, &place);
  }
}

/* Each rank sends its shard to the other half. */
static const EdgeTable *across(Arena *arena, const UnitTables *tables,
                               const SpaceRequest *r, int at,
                               const Mesh *mesh) {
  const UnitEdge *edge = &r->units->edges.data[at];
  const UnitShape *from = tables->unit[edge->from],
                  *to = tables->unit[edge->to];
  int64_t bytes = type_elements(edge->type) * 4;
  EdgeTable *out = ARENA_NEW(arena, EdgeTable);
  EdgeLoad *loads = ARENA_ARRAY(arena, EdgeLoad, from->n_values * to->n_values);
  for (int i = 0; i < from->n_values; i++)
    for (int k = 0; k < to->n_values; k++) {
      int n = i * to->n_values + k;
      bool is_shared = from->values[i].loop[0] >= 0;
      loads[n] = tables->edge[at]->loads[n];
      loads[n].wait +=
          5000000 + bytes * 100 / (is_shared ? mesh->axes[0].size : 1);
    }
  out->loads = loads;
  return out;
}

static const UnitTables *two_halves_tables(Arena *arena, const SpaceRequest *r,
                                           const SpacePlace *place,
                                           int64_t microbatches,
                                           int batch_axes) {
  const int *cut = place->own;
  TableRequest request = {{.units = r->units,
                           .mesh = place->mesh,
                           .slice = r->slice,
                           .model = r->model,
                           .microbatches = microbatches,
                           .chains = r->chains},
                          batch_axes,
                          NULL,
                          false};
  const UnitTables *tables = unit_tables(arena, &request);
  if (!tables) return NULL;
  UnitTables *out = ARENA_NEW(arena, UnitTables);
  *out = *tables;
  out->edge = ARENA_ARRAY(arena, const EdgeTable *, r->units->edges.n + 1);
  for (int i = 0; i < r->units->edges.n; i++) {
    const UnitEdge *edge = &r->units->edges.data[i];
    bool is_cut = (edge->from < *cut) != (edge->to < *cut);
    out->edge[i] =
        is_cut ? across(arena, tables, r, i, place->mesh) : tables->edge[i];
  }
  return out;
}

/* ---- all assignments ---- */

static Ps time_of(const SpaceRequest *r, const UnitTables *tables,
                  const int *values) {
  Ps sum = 0;
  for (int u = 0; u < r->units->units.n; u++) {
    const Load *load = &tables->unit[u]->loads[values[u]];
    sum += load->forward + load->wait[0];
  }
  for (int i = 0; i < r->units->edges.n; i++) {
    const UnitEdge *edge = &r->units->edges.data[i];
    int n = tables->unit[edge->to]->n_values;
    sum +=
        tables->edge[i]->loads[values[edge->from] * n + values[edge->to]].wait;
  }
  return sum;
}

static Ps least_time(const SpaceRequest *r, const UnitTables *tables,
                     int *out_n) {
  int n = r->units->units.n, u;
  int *values = ARENA_ARRAY(r->arena, int, n);
  Ps least = INT64_MAX;
  *out_n = 0;
  do {
    Ps time = time_of(r, tables, values);
    if (time < least) least = time;
    ++*out_n;
    for (u = 0; u < n && ++values[u] == tables->unit[u]->n_values; u++)
      values[u] = 0;
  } while (u < n);
  return least;
}

/* ---- the comparison ---- */

typedef struct Compared {
  const SpaceRequest *of;
  int n_places, n_assignments;
  Ps least[2]; /* of each row */
  const SpaceInfo *rows;
} Compared;

static void compare_place(void *user, const SpacePlace *place) {
  Compared *c = user;
  Proposals found = {0};
  ProposeRequest request = {.of = c->of,
                            .place = place,
                            .microbatches = 1,
                            .batch_axes = ANY_AXES,
                            .zeros = 1,
                            .is_wide = true,
                            .memory = (Bytes)1 << 50,
                            .worth = INT64_MAX / 2};
  const UnitTables *tables =
      place->space->tables(c->of->arena, c->of, place, 1, ANY_AXES);
  int n;
  Ps least = INT64_MAX, all = least_time(c->of, tables, &n);
  propose(c->of->arena, &request, &found);
  for (int i = 0; i < found.list.n; i++)
    if (found.list.data[i].step < least) least = found.list.data[i].step;
  cr_expect_eq(least, all, "%s: %lld, of all %lld", place->space->name,
               (long long)least, (long long)all);
  c->n_places++;
  c->n_assignments += n;
  Ps *of_row = &c->least[place->space - c->rows];
  if (*of_row == 0 || least < *of_row) *of_row = least;
}

/* A chain of products of data: without parameters a step is its forward pass
 * and what that waits for. */
static const Graph *chain(Module *module) {
  static const char text[] =
      "graph g {\n"
      "%0 = input {index = 0} : f32[B:64, C:512] data \"x\"\n"
      "%1 = input {index = 1} : f32[C:512, F:2048] data \"u\"\n"
      "%2 = input {index = 2} : f32[F:2048, G:256] data \"v\"\n"
      "%3 = input {index = 3} : f32[G:256, H:1024] data \"w\"\n"
      "%4 = dot %0, %1 {over = [C]} : f32[B:64, F:2048] \"p\"\n"
      "%5 = dot %4, %2 {over = [F]} : f32[B:64, G:256] \"q\"\n"
      "%6 = dot %5, %3 {over = [G]} : f32[B:64, H:1024] \"r\"\n"
      "output loss \"loss\" %6 }";
  const Graph *graph =
      graph_parse(module, &(Source){"case", text, strlen(text)});
  Text errors = text_create(module->arena);
  diags_print(module->diags, &errors);
  cr_assert(graph, "%s", text_string(&errors));
  return graph;
}

/* The costs of a cluster. */
static void load_machines(Module *module, Trial *out) {
  CompileOptions *options = ARENA_NEW(module->arena, CompileOptions);
  Compilation *loaded = ARENA_NEW(module->arena, Compilation);
  PriceRequest *request = ARENA_NEW(module->arena, PriceRequest);
  *options =
      (CompileOptions){.path = TEST_ROOT "/models/mlp.dnn",
                       .cluster = TEST_ROOT "/models/pipedream-a.cluster",
                       .level = 2};
  cr_assert_eq(driver_load(module, options, loaded), COMPILE_done);
  TrialPlan plan = {.pins = ARENA_NEW(module->arena, Pins),
                    .is_training_only = true};
  cr_assert(driver_try(loaded, module->memory, &plan, request, out));
}

Test(spaces, a_row_and_a_file_add_a_space) {
  Module *module = module_create();
  Trial trial;
  load_machines(module, &trial);
  static const UnitRepeats none;
  const char *reason = NULL;
  const ClusterSlice slice =
      cluster_slice(module->arena, trial.priced.cluster, 0, RANKS);
  SpaceRequest request = {.arena = module->arena,
                          .units = units_of(module->arena, chain(module),
                                            name_intern(module->names, "B"),
                                            &none, &reason),
                          .slice = &slice,
                          .model = &trial.priced.model,
                          .ranks = RANKS};
  cr_assert(request.units, "%s", reason);
  int n;
  const SpaceInfo rows[] = {
      *spaces_all(&n),
      {"two_halves", two_halves_places, two_halves_tables, "two programs"}};
  Compared compared = {.of = &request, .rows = rows};
  spaces_visit(rows, ARRAY_LENGTH(rows), &request, compare_place, &compared);
  cr_expect_eq(compared.n_places, 3 + 2, "meshes and cuts");
  cr_expect_gt(compared.n_assignments, 1000);
  cr_expect_neq(compared.least[0], compared.least[1]);
  driver_end_trial(&trial);
}
