/*
 * cases.c -- makes the case of a seed: a model, machines, pins and a limit of
 * memory, such that the plans that the language can say are not too many.
 *
 * A model that has too many plans gets pins until they are few enough; one that
 * has too few, or no pin left, is drawn again.  A tight limit lies between the
 * smallest and the largest peak of some plans, whose prices this takes.  With
 * stages, every second case may have any number of plans.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sound/sound.h"

enum { MOST_ATTEMPTS = 400, FEWEST_OPERATORS = 2, MOST_OPERATORS = 8 };

/* ---- files ---- */

/* Returns the path of the file: without file_replace, which waits for the disk,
 * because cases are drawn many times. */
static const char *write_file(Arena *arena, const char *folder,
                              const char *name, const char *text) {
  const char *path = arena_printf(arena, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  if (file && fputs(text, file) >= 0 && fclose(file) == 0) return path;
  perror(path);
  exit(2);
}

static _Noreturn void no_memory(void *user) {
  (void)user;
  fprintf(stderr, "sound: no memory left\n");
  exit(2);
}

bool sound_load(Arena *arena, SoundCase *of) {
  Memory *memory = memory_create(no_memory, NULL);
  Module *module = ARENA_NEW(arena, Module);
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  *module = (Module){.memory = memory, .arena = arena_create(memory)};
  module->names = names_create(module->arena);
  module->diags = diags_create(module->arena);
  *options = (CompileOptions){.path = of->model_path,
                              .cluster = of->cluster_path,
                              .plan = of->has_stages ? NULL : of->pins_path,
                              .ranks = of->ranks,
                              .takes_cluster = true,
                              .leaves_open = true,
                              .data_files = DATA_FILES_read,
                              .level = 2};
  bool is_loaded = driver_load(module, options, &of->loaded) == COMPILE_done;
  Text messages = text_create(arena);
  diags_print(module->diags, &messages);
  if (!is_loaded) fputs(text_string(&messages), stderr);
  return is_loaded;
}

/* Writes the files as they are and loads them. */
static void load_case(Arena *arena, SoundCase *c) {
  c->model_path = write_file(arena, c->folder, "model.dnn", c->model);
  c->cluster_path =
      write_file(arena, c->folder, "machines.cluster", c->cluster);
  if (c->pins)
    c->pins_path = write_file(arena, c->folder, "pins.plan", c->pins);
  if (sound_load(arena, c)) return;
  fprintf(stderr, "sound: the files of seed %llu are wrong:\n%s\n%s\n%s\n",
          (unsigned long long)c->seed, c->model, c->cluster,
          c->pins ? c->pins : "");
  exit(2);
}

/* ---- pins ---- */

typedef bool PinFn(SoundSpace *space, Choices *choices);

static bool pin_some_mesh(SoundSpace *space, Choices *choices) {
  if (space->is_mesh_pinned || space->ranks == 1) return false;
  sound_pin_mesh(space, choose(choices, space->n_meshes));
  return true;
}

static bool pin_some_zero(SoundSpace *space, Choices *choices) {
  if (space->n_zeros == 1) return false;
  sound_pin_zero(space, choose(choices, 4));
  return true;
}

static bool pin_some_microbatches(SoundSpace *space, Choices *choices) {
  if (space->n_microbatches == 1) return false;
  int at = choose(choices, space->n_microbatches);
  sound_pin_microbatches(space, space->microbatches[at]);
  return true;
}

static bool pin_some_dim(SoundSpace *space, Choices *choices) {
  if (!space->is_mesh_pinned || space->n_dims < 2) return false;
  int dim = choose(choices, space->n_dims);
  int axes = choose(choices, 1 << space->meshes[0].n_axes);
  sound_pin_dim(space, dim, (unsigned)axes);
  return true;
}

static bool pin_some_operator(SoundSpace *space, Choices *choices) {
  if (!space->is_mesh_pinned || space->n_operators == 0) return false;
  int at = choose(choices, space->n_operators), ways = 1;
  for (int a = 0; a < space->meshes[0].n_axes; a++)
    ways *= space->operators[at].n_dims + 1;
  sound_pin_operator(space, at, 1 + choose(choices, ways));
  return true;
}

static bool pin_some_remat(SoundSpace *space, Choices *choices) {
  if (space->n_remats == 0) return false;
  int at = choose(choices, space->n_remats);
  sound_pin_remat(space, at, choose(choices, 2));
  return true;
}

static bool pin_some_equal_mesh(SoundSpace *space, Choices *choices) {
  int mesh = choose(choices, space->n_meshes);
  const SoundGroups *groups = space->meshes[mesh].groups;
  if (!space->pins_stages || space->is_mesh_pinned ||
      (groups && !groups->are_equal))
    return false;
  sound_pin_mesh(space, mesh);
  return true;
}

static bool pin_some_schedule(SoundSpace *space, Choices *choices) {
  if (!space->pins_stages || space->n_schedules < 2) return false;
  if (space->is_mesh_pinned && !space->meshes[0].groups) return false;
  return sound_pin_schedule(space, choose(choices, space->n_schedules));
}

static bool pin_some_cuts(SoundSpace *space, Choices *choices) {
  if (!space->is_mesh_pinned || !space->is_schedule_pinned ||
      space->are_cuts_pinned || !space->meshes[0].groups)
    return false;
  int64_t n = sound_n_cuts(space, &space->meshes[0], &space->schedules[0]);
  sound_pin_cuts(space, choose(choices, (int)n));
  return true;
}

static bool add_pin(SoundSpace *space, Choices *choices) {
  static PinFn *const alone[] = {pin_some_mesh,         pin_some_zero,
                                 pin_some_microbatches, pin_some_operator,
                                 pin_some_operator,     pin_some_operator,
                                 pin_some_dim,          pin_some_remat};
  static PinFn *const staged[] = {
      pin_some_zero,       pin_some_microbatches, pin_some_remat,
      pin_some_zero,       pin_some_schedule,     pin_some_microbatches,
      pin_some_equal_mesh, pin_some_cuts,         pin_some_dim};
  PinFn *const *pins = space->n_schedules > 0 ? staged : alone;
  int n = space->n_schedules > 0 ? ARRAY_LENGTH(staged) : ARRAY_LENGTH(alone);
  int first = choose(choices, n);
  for (int i = 0; i < n; i++)
    if (pins[(first + i) % n](space, choices)) return true;
  return false;
}

/* False: too many plans are left, or too few. */
static bool add_pins(SoundSpace *space, Choices *choices, int64_t least,
                     int64_t most) {
  int extra = choose(choices, 3) ? 0 : 1 + choose(choices, 2);
  while (extra-- > 0) add_pin(space, choices);
  while (sound_count(space) > most)
    if (!add_pin(space, choices)) return false;
  return sound_count(space) >= least;
}

/* The mesh as a person writes it: one size may be left to the rest. */
static const char *pinned_mesh(SoundCase *c, Choices *choices) {
  const SoundSpace *space = &c->space;
  if (!space->is_mesh_pinned) return "";
  const char *text = sound_mesh_text(space, &space->meshes[0]);
  if (choose(choices, 4)) return text;
  const char *size = strchr(text, '=') + 2;
  c->says_ranks = true;
  return arena_printf(space->arena, "%.*sauto%s", (int)(size - text), text,
                      size + strspn(size, "0123456789"));
}

/* Puts mesh and lines into a file of their own, or into the model. */
static void write_pins(SoundCase *c, Choices *choices, bool is_in_model) {
  const SoundSpace *space = &c->space;
  const char *mesh = pinned_mesh(c, choices);
  bool has_lines = space->pinned[0] != '\0';
  c->lines = space->pinned;
  if (!space->is_mesh_pinned && !has_lines) return;
  const char *text =
      arena_printf(space->arena, "%s%s%s%s", mesh, has_lines ? "plan {\n" : "",
                   space->pinned, has_lines ? "}\n" : "");
  if (is_in_model)
    c->model = arena_printf(space->arena, "%s\n%s", c->model, text);
  else
    c->pins = text;
}

/* ---- memory ---- */

enum { N_SAMPLES = 48 };

static bool find_peaks(SoundCase *c, Choices *choices, int threads,
                       Bytes *out_least, Bytes *out_most) {
  const char *texts[N_SAMPLES];
  SoundPrice prices[N_SAMPLES];
  for (int i = 0; i < N_SAMPLES; i++) {
    SoundPlan plan = sound_random(&c->space, choices);
    texts[i] = sound_text(&c->space, &plan);
  }
  sound_price(&c->loaded, texts, N_SAMPLES, threads, prices);
  *out_least = INT64_MAX;
  *out_most = 0;
  for (int i = 0; i < N_SAMPLES; i++) {
    if (!prices[i].is_legal) continue;
    if (prices[i].peak < *out_least) *out_least = prices[i].peak;
    if (prices[i].peak > *out_most) *out_most = prices[i].peak;
  }
  return *out_most > 0;
}

/* Half of the cases have none, one in ten one that no plan keeps. */
static void add_limit(SoundCase *c, Choices *choices, int threads) {
  Bytes least, most;
  int kind = choose(choices, 10), where = choose(choices, 100);
  bool is_of_devices = choose(choices, 2);
  if (kind < 5 || !find_peaks(c, choices, threads, &least, &most)) return;
  Bytes limit = kind == 9 ? least / 2 : least + (most - least) * where / 100;
  c->has_limit = true;
  if (is_of_devices)
    c->cluster = sound_limit_devices(c->space.arena, c->cluster, limit);
  else
    c->space.pinned = arena_printf(c->space.arena, "%s  memory = %lldB\n",
                                   c->space.pinned, (long long)limit);
}

/* ---- the case ---- */

static void draw_files(Arena *arena, SoundCase *c, Choices *choices,
                       SoundUnequal unequal) {
  int fewest = c->has_stages ? MOST_OPERATORS / 2 : FEWEST_OPERATORS;
  bool are_slow = c->has_stages && choose(choices, 4) > 0;
  c->model = sound_model(choices, fewest, MOST_OPERATORS, c->has_stages);
  SoundMachines machines = sound_machines(choices, c->ranks, unequal, are_slow);
  c->cluster = machines.text;
  c->are_unequal = machines.are_unequal;
  c->says_ranks = machines.all_ranks > c->ranks || choose(choices, 2);
  load_case(arena, c);
  c->space = sound_space(arena, &c->loaded, c->ranks);
}

static bool draw(Arena *arena, SoundCase *c, Choices *choices, int64_t least,
                 const SoundLimits *limits) {
  static const int ranks[] = {2, 4, 8, 3, 6, 1, 5, 7, 4, 2, 8};
  c->ranks = ranks[choose(choices, ARRAY_LENGTH(ranks))];
  if (limits->are_unlike && c->ranks == 1) c->ranks = 2;
  bool has_halves = choose(choices, 10) == 0 && c->ranks > 1;
  SoundUnequal unequal = has_halves ? UNEQUAL_devices : UNEQUAL_none;
  if (limits->are_unlike)
    unequal = choose(choices, 3) ? UNEQUAL_devices : UNEQUAL_links;
  draw_files(arena, c, choices, unequal);
  return add_pins(&c->space, choices, least, limits->most);
}

/* Cases of even seeds have few plans, of all kinds; others are not counted. */
static bool draw_staged(Arena *arena, SoundCase *c, Choices *choices,
                        const SoundLimits *limits) {
  static const int ranks[] = {2, 4, 3, 6, 2, 5, 4};
  bool is_small = c->seed % 2 == 0;
  c->ranks = ranks[choose(choices, ARRAY_LENGTH(ranks))];
  int kind = choose(choices, limits->are_unlike ? 2 : 8);
  draw_files(arena, c, choices,
             kind == 0   ? UNEQUAL_devices
             : kind == 1 ? UNEQUAL_links
                         : UNEQUAL_none);
  c->is_early = !strstr(c->model, "clip = ");
  c->space.pins_stages = limits->pins_stages;
  sound_add_stages(&c->space, &c->loaded);
  if (c->space.n_schedules == 0) return false;
  if (is_small) sound_narrow(&c->space, choose(choices, 3), 2);
  return add_pins(&c->space, choices, 1, is_small ? limits->most : INT64_MAX) &&
         sound_has_stages(&c->space);
}

SoundCase *sound_case(Arena *arena, uint64_t seed, const char *folder,
                      const SoundLimits *limits) {
  Choices *choices = choices_random(arena, seed);
  SoundCase *c = ARENA_NEW(arena, SoundCase);
  int64_t least = seed % 2 == 0 ? limits->least : 1;
  *c = (SoundCase){
      .seed = seed, .folder = folder, .has_stages = limits->has_stages};
  for (int i = 0; !(c->has_stages ? draw_staged(arena, c, choices, limits)
                                  : draw(arena, c, choices, least, limits));
       i++) {
    memory_destroy(c->loaded.module->memory);
    if (i < MOST_ATTEMPTS) continue;
    fprintf(stderr, "sound: seed %llu finds no model with %lld to %lld plans\n",
            (unsigned long long)seed, (long long)least,
            (long long)limits->most);
    exit(2);
  }
  bool has_groups = c->space.meshes[0].groups && c->space.is_mesh_pinned;
  bool is_in_model = choose(choices, 3) == 0 && !has_groups;
  add_limit(c, choices, limits->threads);
  write_pins(c, choices, is_in_model);
  load_case(arena, c);
  return c;
}
