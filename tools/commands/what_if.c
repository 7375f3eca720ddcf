/*
 * what_if.c -- changes a cluster as --what-if says.
 *
 *     link.node=2x           the links of level node have twice the bandwidth
 *     latency.pod=0.5x       messages over level pod take half the time
 *     flops=2x               products of every dtype, on all devices
 *     flops.bf16=400T        a value instead of a factor, with its unit
 *     memory=40GiB           any constant of device_fields.def
 *
 * A factor has at most six decimals and is exact: the result is rounded once,
 * to the nearest integer.
 */
#include "frontend/plan/machines.h"
#include "tools/commands/tool_price.h"

#include <string.h>

typedef struct Change {
  const char *text;
  const char *name;  /* "link.node" */
  const char *value; /* "2x" */
  bool is_factor;
  int64_t parts, of; /* the factor */
} Change;

/* ---- mistakes ---- */

static bool complain(const char *what, const char *help) {
  message_print("dnnc: error: %s\nhelp: %s\n", what, help);
  return false;
}

/* The names of all levels, each once. */
static const char *level_names(Arena *arena, const Cluster *cluster) {
  Text text = text_create(arena);
  Map *seen = map_create(arena);
  for (int g = 0; g <= cluster->n_groups; g++) {
    bool joins = g == cluster->n_groups;
    const Level *levels = joins ? cluster->joining : cluster->groups[g].levels;
    int n = joins ? cluster->n_joining : cluster->groups[g].n_levels;
    for (int i = 0; i < n; i++) {
      if (map_has(seen, levels[i].name)) continue;
      map_put(seen, levels[i].name, NULL);
      text_printf(&text, "%s%s", text.n ? ", " : "", levels[i].name);
    }
  }
  return text_string(&text);
}

static bool report_level(Arena *arena, const Change *change, const char *level,
                         const Cluster *cluster) {
  const char *what =
      *level
          ? arena_printf(arena, "--what-if %s: cluster '%s' has no level '%s'",
                         change->text, cluster->name, level)
          : arena_printf(arena, "--what-if %s names no level", change->text);
  return complain(what, arena_printf(arena, "its levels are %s",
                                     level_names(arena, cluster)));
}

static bool report_name(Arena *arena, const Change *change) {
  Text names = text_create(arena);
  text_add(&names, "link.LEVEL, latency.LEVEL, flops, flops.DTYPE");
  for (int i = 0; i < N_DEVICE_FIELDS; i++) {
    const char *name = device_field_info((DeviceField)i)->name;
    if (strncmp(name, "flops_", 6) != 0) text_printf(&names, ", %s", name);
  }
  return complain(
      arena_printf(arena, "--what-if %s: nothing is called '%s'", change->text,
                   change->name),
      arena_printf(arena, "it changes one of %s", text_string(&names)));
}

/* ---- values ---- */

/* "2x", "0.125x"; false: it is no factor. */
static bool read_factor(const char *text, Change *out) {
  enum { MOST_DECIMALS = 6 };
  int64_t parts = 0, of = 1;
  int decimals = -1;
  size_t n = strlen(text);
  if (n < 2 || n > 14 || text[n - 1] != 'x') return false;
  for (size_t i = 0; i + 1 < n; i++) {
    if (text[i] == '.' && decimals < 0 && i > 0) {
      decimals = 0;
      continue;
    }
    if (text[i] < '0' || text[i] > '9') return false;
    parts = parts * 10 + (text[i] - '0');
    if (decimals >= 0) decimals++, of *= 10;
  }
  if (parts == 0 || decimals == 0 || decimals > MOST_DECIMALS) return false;
  *out = (Change){out->text, out->name, out->value, true, parts, of};
  return true;
}

/* The value after the change; false after a message. */
static bool changed_value(Tool *tool, const Change *change, Unit unit,
                          int64_t *value) {
  const UnitInfo *info = unit_info(unit);
  int64_t most = info->most;
  if (change->is_factor) {
    __extension__ typedef __int128 Wide;
    Wide wide = ((Wide)*value * change->parts + change->of / 2) / change->of;
    if (wide > most)
      return complain(
          arena_printf(tool->arena, "--what-if %s is too large", change->text),
          arena_printf(tool->arena, "the most is %s",
                       quantity_text(tool->arena, unit, most)));
    if (wide > 0 || unit == UNIT_time) {
      *value = (int64_t)wide;
      return true;
    }
    return complain(
        arena_printf(tool->arena, "--what-if %s leaves nothing", change->text),
        "take a larger factor");
  }
  Source *source = ARENA_NEW(tool->arena, Source);
  *source = (Source){"--what-if", change->value, strlen(change->value)};
  Diags *diags = diags_create(tool->arena); /* replaced by one message */
  Expr *x = ast_parse_expr(tool->arena, tool->module.names, diags, source);
  if (x && machine_read_amount(x, unit, value)) return true;
  return complain(
      arena_printf(tool->arena, "--what-if %s: '%s' is no value", change->text,
                   change->value),
      arena_printf(tool->arena, "write a factor, as in 2x, or %s, at most %s",
                   info->expected, quantity_text(tool->arena, unit, most)));
}

/* ---- levels ---- */

static Level *find_level(Cluster *cluster, const char *name, int at) {
  for (int g = 0; g <= cluster->n_groups; g++) {
    bool joins = g == cluster->n_groups;
    Level *levels = joins ? cluster->joining : cluster->groups[g].levels;
    int n = joins ? cluster->n_joining : cluster->groups[g].n_levels;
    for (int i = 0; i < n; i++)
      if (!strcmp(levels[i].name, name) && at-- == 0) return &levels[i];
  }
  return NULL;
}

/* Every level of this name: groups may have levels that are called alike. */
static bool change_levels(Tool *tool, const Change *change, Cluster *cluster,
                          const char *name, bool is_latency) {
  if (!find_level(cluster, name, 0))
    return report_level(tool->arena, change, name, cluster);
  for (int i = 0;; i++) {
    Level *level = find_level(cluster, name, i);
    if (!level) return true;
    if (!changed_value(tool, change, is_latency ? UNIT_time : UNIT_bandwidth,
                       is_latency ? &level->latency : &level->link))
      return false;
  }
}

/* ---- devices ---- */

/* Returns whether the change is about this field of a device. */
static bool names_field(const char *name, const char *field) {
  size_t n = strlen("flops");
  if (strncmp(field, "flops_", n + 1) != 0) return !strcmp(name, field);
  return !strncmp(name, "flops", n) &&
         (!name[n] || (name[n] == '.' && !strcmp(name + n + 1, field + n + 1)));
}

static bool change_device(Tool *tool, const Change *change,
                          ClusterDevice *device, bool *found, bool *known) {
  for (int i = 0; i < N_DEVICE_FIELDS; i++) {
    const DeviceFieldInfo *field = device_field_info((DeviceField)i);
    if (!names_field(change->name, field->name)) continue;
    *known = true;
    if (device->values[i] == 0) continue;
    *found = true;
    if (!changed_value(tool, change, field->unit, &device->values[i]))
      return false;
  }
  return true;
}

static bool change_devices(Tool *tool, const Change *change, Cluster *cluster) {
  bool found = false, known = false;
  if (!strcmp(change->name, "flops") && !change->is_factor)
    return complain(arena_printf(tool->arena,
                                 "--what-if %s: a device has a rate for each "
                                 "dtype",
                                 change->text),
                    "write a factor, as in flops=2x, or name the dtype, as in "
                    "flops.bf16=400T");
  /* Groups may share a device: each of them has its own copy by now. */
  for (int g = 0; g < cluster->n_groups; g++) {
    ClusterDevice *device = ARENA_NEW(tool->arena, ClusterDevice);
    *device = *cluster->groups[g].device;
    cluster->groups[g].device = device;
    if (!change_device(tool, change, device, &found, &known)) return false;
  }
  if (!known) return report_name(tool->arena, change);
  if (found) return true;
  return complain(arena_printf(tool->arena,
                               "--what-if %s: no device of cluster '%s' has it",
                               change->text, cluster->name),
                  "'dnnc show FILE.cluster' prints what they have");
}

/* ---- public ---- */

static bool apply(Tool *tool, const char *text, Cluster *cluster) {
  const char *equals = strchr(text, '=');
  if (!equals || equals == text || !equals[1])
    return complain(
        arena_printf(tool->arena, "--what-if takes NAME=VALUE, not '%s'", text),
        "as in --what-if link.node=2x or --what-if memory=40GiB");
  Change change = {
      .text = text,
      .name = arena_printf(tool->arena, "%.*s", (int)(equals - text), text),
      .value = equals + 1};
  read_factor(change.value, &change);
  const char *dot = strchr(change.name, '.');
  size_t n = dot ? (size_t)(dot - change.name) : strlen(change.name);
  bool is_link = n == 4 && !strncmp(change.name, "link", n);
  bool is_latency = n == 7 && !strncmp(change.name, "latency", n);
  if (is_link || is_latency)
    return change_levels(tool, &change, cluster, dot ? dot + 1 : "",
                         is_latency);
  return change_devices(tool, &change, cluster);
}

static Level *copy_levels(Arena *arena, const Level *levels, int n) {
  return n > 0 ? arena_copy(arena, levels, (size_t)n * sizeof *levels) : NULL;
}

const Cluster *what_if(Tool *tool, const Cluster *cluster) {
  Arena *arena = tool->arena;
  Cluster *copy = ARENA_NEW(arena, Cluster);
  *copy = *cluster;
  copy->groups = arena_copy(arena, cluster->groups,
                            (size_t)cluster->n_groups * sizeof *copy->groups);
  for (int g = 0; g < copy->n_groups; g++)
    copy->groups[g].levels = copy_levels(arena, cluster->groups[g].levels,
                                         cluster->groups[g].n_levels);
  copy->joining = copy_levels(arena, cluster->joining, cluster->n_joining);
  for (int i = 0; i < tool->options.what_if.n; i++)
    if (!apply(tool, tool->options.what_if.data[i], copy)) return NULL;
  return copy;
}
