/*
 * clusters.c -- makes a Cluster of the blocks of a cluster file.
 *
 *     cluster two {                         Cluster two: one group of a100_80g,
 *       device = mine                       whose memory is 40 GiB, and whose
 *       level node { count = 2; ... }       two levels have 2 and 4 members
 *       level pod  { count = 4; ... }
 *     }
 *     device mine { base = a100_80g; memory = 40GiB }
 *
 * machines_check has reported what is wrong inside of one setting; this file
 * reports what is missing and what does not fit together, and goes on with the
 * next block.  A device of the file hides the preset of its name, so that a
 * canonical text, which spells all devices out, can be read.
 */
#include "frontend/frontend.h"
#include "frontend/plan/machines.h"
#include "frontend/syntax/help.h"

#include <string.h>

enum { MAX_GROUPS = 4096 };

typedef struct Reader {
  Arena *arena;
  Names *names;
  Diags *diags;
  const Ast *ast;
  const Item *block; /* `cluster` */
  Map *blocks;       /* name -> Item of a device */
  Map *devices;      /* name -> ClusterDevice, once it is resolved */
  Map *members;      /* name -> Setting of a group */
  int64_t ranks;
  bool is_too_large;
} Reader;

/* ---- settings ---- */

static const Setting *find_setting(const Setting *settings, int n,
                                   const char *name) {
  for (int i = 0; i < n; i++)
    if (!settings[i].is_block && !strcmp(settings[i].path.names[0], name))
      return &settings[i];
  return NULL;
}

static Span label_span(const Setting *block) {
  return block->path.spans[block->path.n - 1];
}

static Name label(const Setting *block) {
  return block->path.n > 1 ? block->path.names[1] : NULL;
}

static bool is_block(const Setting *setting, const char *word) {
  return setting->is_block && strcmp(setting->path.names[0], word) == 0;
}

static bool is_group(const Setting *setting) {
  return is_block(setting, "group") || is_block(setting, "island");
}

static bool check_label(Reader *r, const char *word, Name name, Span span) {
  if (name) return true;
  Diag *d = diag(r->diags, DIAG_block_label, span, word);
  diag_help(d, "write '%s NAME { ... }'", word);
  return false;
}

static void report_twice(Reader *r, const char *word, Name name, Span span,
                         Span before) {
  Diag *d = diag(r->diags, DIAG_machine_twice, span, word, name);
  diag_note(d, before, "the first one is here");
}

/* ---- devices ---- */

static const Setting *device_setting(const Item *block, const char *name) {
  return find_setting(block->settings, block->n_settings, name);
}

static void collect_devices(Reader *r) {
  for (int i = 0; i < r->ast->n_items; i++) {
    const Item *item = &r->ast->items[i];
    if (item->kind != ITEM_block || strcmp(item->block, "device") != 0)
      continue;
    if (!check_label(r, "device", item->name, item->name_span)) continue;
    const Item *before = map_get(r->blocks, item->name);
    if (before)
      report_twice(r, "device", item->name, item->name_span, before->name_span);
    else
      map_put(r->blocks, item->name, (void *)(uintptr_t)item);
  }
}

/* Each base of the cycle, from the device that leads into it. */
static void report_base_cycle(Reader *r, const Item *block) {
  enum { MOST_NOTES = 5 };
  const Setting *base = device_setting(block, "base");
  Diag *d = diag(r->diags, DIAG_base_cycle, base->value->span, block->name);
  if (base->value->name == block->name)
    diag_note(d, block->name_span,
              device_preset_find(block->name) >= 0
                  ? "this device hides the preset of its name"
                  : "the device is declared here");
  const Item *next = map_get(r->blocks, base->value->name);
  for (int i = 0; next != block && i < MOST_NOTES; i++) {
    base = device_setting(next, "base");
    diag_note(d, base->value->span, "'%s' has the base '%s'", next->name,
              base->value->name);
    next = map_get(r->blocks, base->value->name);
  }
}

static ClusterDevice *new_device(Reader *r, const ClusterDevice *base,
                                 const Item *block) {
  ClusterDevice *device = ARENA_NEW(r->arena, ClusterDevice);
  if (base) *device = *base;
  device->name = block->name;
  const Setting *target = device_setting(block, "target");
  for (int i = 0; target && device_target(i); i++)
    if (target->value->kind == EXPR_name &&
        strcmp(target->value->name, device_target(i)) == 0)
      device->target = device_target(i);
  for (int i = 0; i < N_DEVICE_FIELDS; i++) {
    const DeviceFieldInfo *field = device_field_info((DeviceField)i);
    const Setting *setting = device_setting(block, field->name);
    int64_t value;
    if (setting && machine_read_amount(setting->value, field->unit, &value))
      device->values[i] = value;
  }
  map_put(r->devices, block->name, device);
  return device;
}

/* A device that is resolved, or a preset that no block hides; else NULL. */
static const ClusterDevice *find_resolved(Reader *r, Name name) {
  int preset = device_preset_find(name);
  if (map_has(r->devices, name) || map_has(r->blocks, name) || preset < 0)
    return map_get(r->devices, name);
  ClusterDevice device = device_of_preset(preset, r->names);
  const ClusterDevice *result = arena_copy(r->arena, &device, sizeof device);
  map_put(r->devices, name, (void *)(uintptr_t)result);
  return result;
}

/* The device of a name, which is resolved with all its bases.  NULL: a base is
 * wrong, which machines_check or this function has reported.  The chain of
 * bases may be as long as the file. */
static const ClusterDevice *find_device(Reader *r, Name name) {
  VEC(const Item *) chain = {0};
  Map *visited = map_create(r->arena);
  const Setting *base = NULL;
  bool is_cycle = false;
  while (name && !map_has(r->devices, name) && map_has(r->blocks, name)) {
    const Item *block = map_get(r->blocks, name);
    is_cycle = map_has(visited, block);
    if (is_cycle) {
      report_base_cycle(r, block);
      break;
    }
    map_put(visited, block, r);
    vec_push(r->arena, &chain, block);
    base = device_setting(block, "base");
    name = base && base->value->kind == EXPR_name ? base->value->name : NULL;
  }
  const ClusterDevice *device =
      name && !is_cycle ? find_resolved(r, name) : NULL;
  bool is_wrong = base && !device;
  for (int i = chain.n - 1; i >= 0; i--) {
    if (is_wrong)
      map_put(r->devices, chain.data[i]->name, NULL);
    else
      device = new_device(r, device, chain.data[i]);
  }
  return device;
}

/* Where the missing setting of a device would be written, or the place that
 * names a preset. */
static void check_device(Reader *r, const ClusterDevice *device, Span span) {
  const Item *block = map_get(r->blocks, device->name);
  Span place = block ? block->name_span : span;
  if (!device->target && !(block && device_setting(block, "target"))) {
    Diag *d =
        diag(r->diags, DIAG_missing_setting, place, device->name, "target");
    diag_help(d, "or name a base, from which it follows");
  }
  for (int i = 0; i < N_DEVICE_FIELDS && device->target; i++) {
    const DeviceFieldInfo *field = device_field_info((DeviceField)i);
    if (!field->is_required || device->values[i] != 0 ||
        (block && device_setting(block, field->name)))
      continue;
    Diag *d =
        diag(r->diags, DIAG_missing_setting, place, device->name, field->name);
    if (!block)
      diag_help(d, "write 'device NAME { base = %s; %s = ... }'", device->name,
                field->name);
    else
      diag_help(d, "it is the %s; a base may give it, too", field->what);
    return; /* the next one has the same place */
  }
}

/* The device that these settings name; NULL after a message. */
static const ClusterDevice *read_device(Reader *r, const Setting *settings,
                                        int n, Name owner, Span owner_span,
                                        Span *out_span) {
  const Setting *setting = find_setting(settings, n, "device");
  if (!setting) {
    Diag *d = diag(r->diags, DIAG_missing_setting, owner_span, owner, "device");
    diag_help(d, "'dnnc list devices' names the presets");
    return NULL;
  }
  *out_span = setting->span;
  if (setting->value->kind != EXPR_name) return NULL;
  const ClusterDevice *device = find_device(r, setting->value->name);
  if (device) check_device(r, device, setting->value->span);
  return device;
}

/* ---- levels ---- */

/* `needed`: where to report that the setting is missing; SPAN_NONE: it may be.
 */
static void read_amount(Reader *r, const Setting *level, const char *name,
                        Unit unit, Span needed, int64_t *out) {
  const Setting *setting =
      find_setting(level->settings, level->n_settings, name);
  if (setting)
    machine_read_amount(setting->value, unit, out);
  else if (needed.source)
    diag(r->diags, DIAG_missing_setting, needed, label(level), name);
}

static void read_kind(Reader *r, const Setting *level, Level *out) {
  const Setting *kind =
      find_setting(level->settings, level->n_settings, "kind");
  const Setting *ratio =
      find_setting(level->settings, level->n_settings, "oversubscription");
  if (kind && kind->value->kind == EXPR_name)
    link_kind_find(kind->value->name, &out->kind);
  if (ratio) machine_read_ratio(ratio->value, &out->oversubscription);
  const LinkKindInfo *info = link_kind_info(out->kind);
  if (!ratio || info->has_uplinks) return;
  Diag *d = diag(r->diags, DIAG_no_uplinks, ratio->span, info->name);
  diag_note(d, kind->span, "the kind is given here");
}

/* `count` is what a joining level has where its block says nothing; 0: it must
 * say. */
static Level read_level(Reader *r, const Setting *block, int64_t count) {
  Level level = {.name = label(block),
                 .count = count,
                 .links = 1,
                 .kind = LINK_switch,
                 .oversubscription = {1, 1}};
  if (check_label(r, "level", level.name, label_span(block))) {
    Span head = block->path.spans[0]; /* both may be missing */
    read_amount(r, block, "count", UNIT_count,
                count ? SPAN_NONE : label_span(block), &level.count);
    read_amount(r, block, "link", UNIT_bandwidth, head, &level.link);
    read_amount(r, block, "links", UNIT_count, SPAN_NONE, &level.links);
    read_amount(r, block, "latency", UNIT_time, SPAN_NONE, &level.latency);
    read_kind(r, block, &level);
  }
  if (level.count == 0) level.count = 1; /* after a message */
  return level;
}

static void check_level_name(Reader *r, const Setting *const *blocks, int n) {
  for (int i = 0; i < n; i++)
    if (label(blocks[n]) && label(blocks[i]) == label(blocks[n])) {
      report_twice(r, "level", label(blocks[n]), label_span(blocks[n]),
                   label_span(blocks[i]));
      return;
    }
}

typedef struct Levels {
  const Setting *blocks[MAX_LEVELS + 1];
  Level data[MAX_LEVELS];
  int n;
} Levels;

/* Reads the levels among these settings. */
static Level *read_levels(Reader *r, const Setting *settings, int n,
                          int64_t count, int *out_n) {
  Levels levels = {0};
  for (int i = 0; i < n; i++) {
    if (!is_block(&settings[i], "level")) continue;
    if (levels.n == MAX_LEVELS) {
      diag(r->diags, DIAG_too_many_levels, label_span(&settings[i]),
           MAX_LEVELS);
      break;
    }
    levels.blocks[levels.n] = &settings[i];
    check_level_name(r, levels.blocks, levels.n);
    levels.data[levels.n++] = read_level(r, &settings[i], count);
  }
  *out_n = levels.n;
  return arena_copy(r->arena, levels.data,
                    (size_t)levels.n * sizeof *levels.data);
}

/* Counts the ranks of a group, and says once that they are too many. */
static void add_ranks(Reader *r, const ClusterGroup *group, Span span) {
  int64_t n = 1;
  bool is_too_large = r->is_too_large;
  for (int i = 0; i < group->n_levels && !is_too_large; i++) {
    is_too_large = n > MAX_CLUSTER_RANKS / group->levels[i].count;
    if (!is_too_large) n *= group->levels[i].count;
  }
  is_too_large = is_too_large || n > MAX_CLUSTER_RANKS - r->ranks;
  if (is_too_large && !r->is_too_large)
    diag(r->diags, DIAG_too_many_ranks, span, MAX_CLUSTER_RANKS);
  r->is_too_large = is_too_large;
  if (!is_too_large) r->ranks += n;
}

/* ---- groups ---- */

static ClusterGroup read_group(Reader *r, const Setting *settings, int n,
                               Name owner, Span owner_span) {
  ClusterGroup group = {0};
  group.device = read_device(r, settings, n, owner, owner_span, &group.span);
  group.levels = read_levels(r, settings, n, 0, &group.n_levels);
  if (group.n_levels == 0) {
    Diag *d = diag(r->diags, DIAG_no_level, owner_span, owner);
    diag_help(d, "a level is 'level node { count = 8; link = 300GB/s }'");
  }
  add_ranks(r, &group, owner_span);
  return group;
}

static void read_named_group(Reader *r, const Setting *block, Cluster *out) {
  Name name = label(block);
  Span span = label_span(block);
  if (!check_label(r, block->path.names[0], name, span)) return;
  const Setting *before = map_get(r->members, name);
  if (before) report_twice(r, "group", name, span, label_span(before));
  map_put(r->members, name, (void *)(uintptr_t)block);
  ClusterGroup *group = &out->groups[out->n_groups++];
  *group = read_group(r, block->settings, block->n_settings, name, span);
  group->name = name;
  group->is_island = is_block(block, "island");
}

/* The levels after the groups must have them all as members. */
static void read_joining(Reader *r, const Setting *settings, int n,
                         Cluster *out) {
  int n_levels = 0, n_errors = diags_errors(r->diags);
  int64_t members = 1;
  for (int i = 0; i < n; i++) n_levels += is_block(&settings[i], "level");
  out->joining = read_levels(r, settings, n, n_levels == 1 ? out->n_groups : 0,
                             &out->n_joining);
  if (n_levels == 0 && out->n_groups > 1) {
    Diag *d = diag(r->diags, DIAG_no_joining, r->block->name_span,
                   out->n_groups, r->block->name);
    diag_help(d, "add a level after the groups, as in 'level room { link = "
                 "25GB/s }'");
  }
  for (int i = 0; i < out->n_joining && members <= MAX_GROUPS; i++)
    members *= out->joining[i].count;
  if (n_levels > 0 && members != out->n_groups &&
      diags_errors(r->diags) == n_errors)
    diag(r->diags, DIAG_joining_count, r->block->name_span, out->n_groups,
         r->block->name, (long long)members);
}

/* Settings that belong into the groups, or after them. */
static void check_order(Reader *r, int first, int last) {
  const Setting *settings = r->block->settings;
  for (int i = 0; i < r->block->n_settings; i++) {
    const Setting *setting = &settings[i];
    Diag *d = NULL;
    if (i < last && is_block(setting, "level"))
      d = diag(r->diags, DIAG_level_order, setting->path.spans[0]);
    else if (!setting->is_block && !strcmp(setting->path.names[0], "device"))
      d = diag(r->diags, DIAG_device_of_groups, setting->path.spans[0]);
    if (d)
      diag_note(d, settings[i < first ? first : last].path.spans[0],
                "a group is here");
  }
}

static void read_groups(Reader *r, int first, int last, Cluster *out) {
  const Item *block = r->block;
  int n = 0;
  check_order(r, first, last);
  for (int i = first; i <= last; i++) n += is_group(&block->settings[i]);
  if (n > MAX_GROUPS) {
    diag(r->diags, DIAG_too_many_groups, block->name_span, MAX_GROUPS);
    return;
  }
  out->groups = ARENA_ARRAY(r->arena, ClusterGroup, n);
  for (int i = first; i <= last; i++)
    if (is_group(&block->settings[i]))
      read_named_group(r, &block->settings[i], out);
  if (out->n_groups < n) return; /* after a message */
  read_joining(r, block->settings + last + 1, block->n_settings - last - 1,
               out);
}

/* ---- the file ---- */

static Cluster *read_cluster(Reader *r) {
  const Item *block = r->block;
  Cluster *cluster = ARENA_NEW(r->arena, Cluster);
  cluster->name = block->name;
  int first = -1, last = -1;
  for (int i = 0; i < block->n_settings; i++) {
    if (!is_group(&block->settings[i])) continue;
    if (first < 0) first = i;
    last = i;
  }
  if (first >= 0) {
    read_groups(r, first, last, cluster);
    return cluster;
  }
  cluster->n_groups = 1;
  cluster->groups = ARENA_NEW(r->arena, ClusterGroup);
  *cluster->groups = read_group(r, block->settings, block->n_settings,
                                block->name, block->name_span);
  return cluster;
}

static void read_curves(Reader *r, Cluster *cluster) {
  VEC(MeasuredCurve) curves = {0};
  for (int i = 0; i < r->ast->n_items; i++) {
    const Item *item = &r->ast->items[i];
    if (item->kind != ITEM_block || strcmp(item->block, "measured") != 0)
      continue;
    for (int k = 0; k < item->n_settings; k++)
      if (item->settings[k].value)
        vec_push(r->arena, &curves,
                 (MeasuredCurve){item->settings[k].path.names[0],
                                 item->settings[k].value->name});
  }
  cluster->curves = curves.data;
  cluster->n_curves = curves.n;
}

/* The one block `cluster`; NULL after a message. */
static const Item *find_cluster(Reader *r) {
  const Item *found = NULL, *measured = NULL;
  for (int i = 0; i < r->ast->n_items; i++) {
    const Item *item = &r->ast->items[i];
    bool is_cluster =
        item->kind == ITEM_block && strcmp(item->block, "cluster") == 0;
    bool is_measured =
        item->kind == ITEM_block && strcmp(item->block, "measured") == 0;
    const Item **before = is_cluster ? &found : &measured;
    if (!is_cluster && !is_measured) {
      if (item->kind != ITEM_block || strcmp(item->block, "device") != 0)
        diag(r->diags, DIAG_cluster_item, item->span);
    } else if (*before) {
      Diag *d = diag(r->diags, DIAG_block_twice, item->name_span, item->block);
      diag_note(d, (*before)->name_span, "it is given here first");
    } else {
      *before = item;
    }
  }
  if (!found && diags_errors(r->diags) == 0) {
    Diag *d = diag(r->diags, DIAG_no_cluster, SPAN_FILE(r->ast->source));
    diag_help(d, "a cluster is 'cluster NAME { device = a100_80g; level node "
                 "{ count = 8; link = 300GB/s } }'");
  }
  if (found && !check_label(r, "cluster", found->name, found->name_span))
    return NULL;
  return found;
}

const Cluster *frontend_read_cluster(Module *module, const Source *source) {
  const Ast *ast =
      ast_parse(module->arena, module->names, module->diags, source);
  Reader r = {.arena = module->arena,
              .names = module->names,
              .diags = module->diags,
              .ast = ast,
              .blocks = map_create(module->arena),
              .devices = map_create(module->arena),
              .members = map_create(module->arena)};
  if (diags_errors(module->diags) > 0) return NULL;
  machines_check(module->arena, module->diags, ast);
  collect_devices(&r);
  r.block = find_cluster(&r);
  Cluster *cluster = r.block ? read_cluster(&r) : NULL;
  /* Devices that no group has may be wrong, too. */
  for (int i = 0; i < map_size(r.blocks); i++)
    find_device(&r, map_key_at(r.blocks, i));
  if (!cluster || diags_errors(module->diags) > 0) return NULL;
  read_curves(&r, cluster);
  return cluster;
}
