/*
 * machines.c -- checks clusters, devices and certificates: their settings must
 * exist and have values of the right kind and unit.  clusters.c makes a Cluster
 * of them.
 */
#include "frontend/plan/machines.h"
#include "frontend/syntax/help.h"

#include <math.h>
#include <string.h>

typedef enum Kind { /* quantities first, in the order of units.def */
                    COUNT = UNIT_count,
                    BYTES = UNIT_bytes,
                    BANDWIDTH = UNIT_bandwidth,
                    FLOPS = UNIT_flops,
                    HERTZ = UNIT_hertz,
                    TIME = UNIT_time,
                    RATIO,
                    DEVICE,
                    KIND,
                    TARGET,
                    TEXT,
                    DURATION, /* a time without a limit */
                    NUMBER,   /* of at least 0 */
                    BLOCK,
                    FIELD_count = COUNT, /* of the rows of device_fields.def */
                    FIELD_bytes = BYTES,
                    FIELD_bandwidth = BANDWIDTH,
                    FIELD_flops = FLOPS,
                    FIELD_hertz = HERTZ,
                    FIELD_text = TEXT, /* and of certificate_fields.def */
                    FIELD_time = DURATION,
                    FIELD_number = NUMBER
} Kind;

static const struct {
  const char *block, *name;
  Kind kind;
} rows[] = {
#define MACHINE(block, name, kind) {#block, #name, kind},
#include "frontend/plan/machines.def"
};

enum { MOST_SUGGESTED = 100 }; /* devices of a file, as help */

/* Picoseconds that are counted in 64 bits, with room for rounding. */
#define MOST_DURATION INT64_C(9000000000000000000)

typedef struct Check {
  Arena *arena;
  Diags *diags;
  Map *devices; /* of the file, by name */
} Check;

static Diag *machine_wrong(Check *c, const Setting *setting,
                           const char *wanted) {
  const Expr *x = setting->value;
  return diag(c->diags, DIAG_wrong_setting, x->span, setting->path.names[0],
              wanted, span_text(c->arena, x->span));
}

static void machine_check_word(Check *c, const Setting *setting,
                               const char *wanted, const char *const *names,
                               int n) {
  const Expr *x = setting->value;
  for (int i = 0; x->kind == EXPR_name && i < n; i++)
    if (strcmp(x->name, names[i]) == 0) return;
  if (x->kind != EXPR_name) {
    machine_wrong(c, setting, wanted);
    return;
  }
  Diag *d = diag(c->diags, DIAG_wrong_setting, x->span, setting->path.names[0],
                 wanted, x->name);
  diag_choices(c->arena, d, x->name, names, n);
}

/* Presets, and the devices of the file. */
static void machine_check_device(Check *c, const Setting *setting) {
  const Expr *x = setting->value;
  if (x->kind == EXPR_name && map_has(c->devices, x->name)) return;
  VEC(const char *) names = {0};
  for (int i = 0; i < device_preset_count(); i++)
    vec_push(c->arena, &names, device_preset(i)->name);
  for (int i = 0; i < map_size(c->devices) && i < MOST_SUGGESTED; i++)
    vec_push(c->arena, &names, map_key_at(c->devices, i));
  machine_check_word(c, setting, "a preset or a 'device' of the file",
                     names.data, names.n);
}

static void machine_check_kind(Check *c, const Setting *setting) {
  const char *names[N_LINK_KINDS];
  for (int i = 0; i < N_LINK_KINDS; i++)
    names[i] = link_kind_info((LinkKind)i)->name;
  machine_check_word(c, setting, "a kind of link", names, N_LINK_KINDS);
}

static void machine_check_target(Check *c, const Setting *setting) {
  VEC(const char *) names = {0};
  for (int i = 0; device_target(i); i++)
    vec_push(c->arena, &names, device_target(i));
  machine_check_word(c, setting, "a back end", names.data, names.n);
}

/* ---- numbers ---- */

static bool machine_number(const Expr *x, double *out) {
  if (x->kind == EXPR_int) *out = (double)x->integer;
  if (x->kind == EXPR_float) *out = x->real;
  return x->kind == EXPR_int || x->kind == EXPR_float;
}

/* A quantity is in bytes, bits count too, where its unit says so. */
static bool unit_fits(const char *spelling, Unit unit) {
  const char *suffix = "";
  if (spelling) {
    suffix = spelling + strspn(spelling, "0123456789.");
    if (*suffix == 'e' || *suffix == 'E')
      suffix += 1 + strspn(suffix + 1, "+-0123456789");
  }
  bool is_rate = strstr(suffix, "/s") != NULL;
  bool is_size = strpbrk(suffix, "Bb") != NULL;
  bool is_count = !*suffix || (!suffix[1] && strchr("KMGTP", *suffix));
  switch (unit) {
  case UNIT_bytes: return is_size && !is_rate;
  case UNIT_bandwidth: return is_size && is_rate;
  case UNIT_time: return !is_count && !is_size && !is_rate;
  default: return is_count;
  }
}

typedef enum Amount {
  AMOUNT_fine,
  AMOUNT_wrong,
  AMOUNT_zero,
  AMOUNT_large
} Amount;

static Amount amount_read(const Expr *x, Unit unit, int64_t most,
                          int64_t *out) {
  double value = 0;
  if (!machine_number(x, &value) || !unit_fits(x->name, unit) ||
      (unit == UNIT_count && x->kind != EXPR_int))
    return AMOUNT_wrong;
  value *= unit_info(unit)->scale;
  if (value > (double)most) return AMOUNT_large;
  *out = (int64_t)llround(value);
  return *out > 0 || unit == UNIT_time ? AMOUNT_fine : AMOUNT_zero;
}

bool machine_read_amount(const Expr *x, Unit unit, int64_t *out) {
  return amount_read(x, unit, unit_info(unit)->most, out) == AMOUNT_fine;
}

bool machine_read_duration(const Expr *x, int64_t *out) {
  return amount_read(x, UNIT_time, MOST_DURATION, out) == AMOUNT_fine;
}

bool machine_read_number(const Expr *x, double *out) {
  return machine_number(x, out) && !x->name && *out >= 0;
}

bool machine_read_ratio(const Expr *x, LinkRatio *out) {
  enum { PARTS = 1000000 };
  double value = 0;
  if (!machine_number(x, &value) || x->name || value < 1 || value > PARTS)
    return false;
  int64_t parts = (int64_t)llround(value * PARTS);
  int64_t divisor = common_divisor(parts, PARTS);
  *out = (LinkRatio){parts / divisor, PARTS / divisor};
  return true;
}

/* No device is slower; 19.5 for 19.5T is a common slip. */
enum { LEAST_FLOPS = 1000000 };

static void machine_too_slow(Check *c, const Setting *setting) {
  const Expr *x = setting->value;
  Diag *d = machine_wrong(c, setting, unit_info(UNIT_flops)->expected);
  diag_help(d, "without a unit it is %s FLOP/s; a device has at least 1M",
            span_text(c->arena, x->span));
}

static void check_amount(Check *c, const char *block, const Setting *setting,
                         Unit unit, int64_t most) {
  const Expr *x = setting->value;
  const UnitInfo *info = unit_info(unit);
  int64_t value;
  switch (amount_read(x, unit, most, &value)) {
  case AMOUNT_fine:
    if (unit == UNIT_flops && value < LEAST_FLOPS) machine_too_slow(c, setting);
    return;
  case AMOUNT_wrong: machine_wrong(c, setting, info->expected); return;
  case AMOUNT_zero:
    if (unit == UNIT_count)
      machine_wrong(c, setting, info->expected);
    else
      diag(c->diags, DIAG_not_positive, x->span, setting->path.names[0], block,
           span_text(c->arena, x->span));
    return;
  case AMOUNT_large:
    diag(c->diags, DIAG_setting_large, x->span, setting->path.names[0],
         quantity_text(c->arena, unit, most), span_text(c->arena, x->span));
    return;
  }
}

static void machine_check_value(Check *c, const char *block,
                                const Setting *setting, Kind kind) {
  LinkRatio ratio;
  double number = 0;
  switch (kind) {
  case RATIO:
    if (!machine_read_ratio(setting->value, &ratio))
      machine_wrong(c, setting, "a number from 1 to 1000000");
    return;
  case DEVICE: machine_check_device(c, setting); return;
  case KIND: machine_check_kind(c, setting); return;
  case TARGET: machine_check_target(c, setting); return;
  case TEXT:
    if (setting->value->kind != EXPR_string)
      machine_wrong(c, setting, "a string");
    return;
  case DURATION:
    check_amount(c, block, setting, UNIT_time, MOST_DURATION);
    return;
  case NUMBER:
    if (!machine_read_number(setting->value, &number))
      machine_wrong(c, setting, "a number of at least 0");
    return;
  case BLOCK: return;
  default:
    check_amount(c, block, setting, (Unit)kind, unit_info((Unit)kind)->most);
  }
}

/* ---- settings ---- */

static void check_settings(Check *c, const char *block, const Setting *settings,
                           int n);

static void check_setting(Check *c, const char *block, const Setting *setting) {
  Name name = setting->path.names[0];
  const char *names[ARRAY_LENGTH(rows)];
  int n = 0;
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    if (strcmp(rows[i].block, block) != 0) continue;
    if (*rows[i].name) names[n++] = rows[i].name;
    if ((*rows[i].name && strcmp(rows[i].name, name) != 0) || setting->type)
      continue;
    if ((rows[i].kind == BLOCK) != setting->is_block)
      diag(c->diags, DIAG_block_or_value, setting->path.spans[0], name,
           setting->is_block ? "a value" : "a block");
    else if (setting->is_block)
      check_settings(c, name, setting->settings, setting->n_settings);
    else
      machine_check_value(c, block, setting, rows[i].kind);
    return;
  }
  Diag *d =
      diag(c->diags, DIAG_unknown_setting, setting->path.spans[0], block, name);
  diag_choices(c->arena, d, name, names, n);
}

static void check_settings(Check *c, const char *block, const Setting *settings,
                           int n) {
  Map *given = map_create(c->arena);
  for (int i = 0; i < n; i++) {
    const Setting *setting = &settings[i], *before;
    Name name = setting->path.names[0];
    if (!setting->is_block && (before = map_get(given, name)) != NULL) {
      Diag *d = diag(c->diags, DIAG_given_twice, setting->path.spans[0], name);
      diag_note(d, before->path.spans[0], "it is given here first");
    } else if (!setting->is_block) {
      map_put(given, name, (void *)(uintptr_t)setting);
    }
    check_setting(c, block, setting);
  }
}

void machines_check(Arena *arena, Diags *diags, const Ast *ast) {
  Check c = {arena, diags, map_create(arena)};
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    if (item->kind == ITEM_block && item->name &&
        strcmp(item->block, "device") == 0)
      map_put(c.devices, item->name, (void *)(uintptr_t)item);
  }
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    if (item->kind != ITEM_block) continue;
    for (int k = 0; k < ARRAY_LENGTH(rows); k++) {
      bool is_nested = strcmp(rows[k].block, "level") == 0 ||
                       strcmp(rows[k].block, "group") == 0 ||
                       strcmp(rows[k].block, "island") == 0;
      if (is_nested || strcmp(rows[k].block, item->block) != 0) continue;
      check_settings(&c, item->block, item->settings, item->n_settings);
      break;
    }
  }
}
