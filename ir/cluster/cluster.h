/*
 * cluster.h -- declares the machines that a plan is for: groups of equal
 * devices, joined by levels of links.
 *
 *     cluster pods {                          ranks 0..7 are a node, and ranks
 *       device = a100_80g                     0..31 a pod: a rank is counted
 *       level node { count = 8; ... }         from the inside out
 *       level pod  { count = 4; ... }
 *     }
 *
 * A *unit* of a level is what its links join: `count` members, each of which is
 * a device on the first level and a unit of the level below on all others.
 * Levels that follow groups have groups as members.  All quantities are
 * integers, so that a cost is the same on every machine.
 */
#ifndef IR_CLUSTER_CLUSTER_H
#define IR_CLUSTER_CLUSTER_H

#include "ir/ir.h"

typedef int64_t Ps;    /* picoseconds */
typedef int64_t Bytes; /* number of bytes, or of bytes per second */

/* ---- quantity.c: quantities as text ---- */

typedef enum Unit {
#define UNIT(name, expected, suffix, scale, most) UNIT_##name,
#include "ir/cluster/units.def"
  N_UNITS
} Unit;

typedef struct UnitInfo {
  const char *name, *expected, *suffix;
  double scale;
  int64_t most;
} UnitInfo;

const UnitInfo *unit_info(Unit unit);
/* Appends the shortest exact text with a unit of the language: "12.5GB/s",
 * "79GiB", "1.5us", "312T". */
void quantity_print(Text *out, Unit unit, int64_t value);
const char *quantity_text(Arena *arena, Unit unit, int64_t value);

/* ---- device.c ---- */

typedef enum DeviceField {
#define DEVICE_FIELD(name, unit, need, what) DEVICE_##name,
#include "ir/cluster/device_fields.def"
  N_DEVICE_FIELDS
} DeviceField;

typedef struct DeviceFieldInfo {
  const char *name;
  Unit unit;
  bool is_required;
  const char *what;
} DeviceFieldInfo;

const DeviceFieldInfo *device_field_info(DeviceField field);

typedef struct ClusterDevice {
  Name name;
  const char *target; /* a row of backends.def, "cpu" or "cuda" */
  /* Constants; 0 means that the device lacks it, or it is unknown. */
  int64_t values[N_DEVICE_FIELDS];
} ClusterDevice;

/* Returns the FLOP/s of matmuls in this dtype.  Returns 0 if the device
 * computes none. */
int64_t device_flops(const ClusterDevice *device, DType dtype);
/* Returns the bytes that an arena may have: the memory without `reserve`; 0 or
 * more. */
int64_t device_usable_memory(const ClusterDevice *device);

typedef struct DeviceConstant {
  int preset;
  DeviceField field;
  int64_t value;
  const char *mark; /* "published", "measured" or "from memory" */
  const char *date, *source;
} DeviceConstant;

typedef struct DevicePreset {
  const char *name, *target;
  /* Name that the device's driver has for it; "" means no device. */
  const char *driver_name;
  const char *what;
} DevicePreset;

int device_preset_count(void);
const DevicePreset *device_preset(int index);
/* Returns the index of a preset.  Returns -1 if there is none of this name. */
int device_preset_find(const char *name);
/* Returns a constant of a preset.  Returns NULL if the device lacks it, or
 * nobody knows. */
const DeviceConstant *device_preset_constant(int preset, DeviceField field);
/* Returns a device with the constants of a preset, under its name. */
ClusterDevice device_of_preset(int preset, Names *names);
/* Returns the i-th of the back ends that presets have, each once.  Returns NULL
 * if there are no more. */
const char *device_target(int index);

/* ---- link.c ---- */

typedef enum LinkKind {
#define LINK_KIND(name, port, cut, uplinks, rule) LINK_##name,
#include "ir/cluster/link_kinds.def"
  N_LINK_KINDS
} LinkKind;

typedef enum LinkPort { PORT_own, PORT_direct, PORT_bus } LinkPort;
typedef enum LinkCut { CUT_full, CUT_link, CUT_ring, CUT_torus } LinkCut;

typedef struct LinkKindInfo {
  const char *name;
  LinkPort port;
  LinkCut cut;
  bool has_uplinks;
  const char *rule; /* rule that says which transfers share which link */
} LinkKindInfo;

const LinkKindInfo *link_kind_info(LinkKind kind);
bool link_kind_find(const char *name, LinkKind *out);

typedef struct LinkRatio { /* a fraction in lowest terms, at least 1 */
  int64_t num, den;
} LinkRatio;

typedef struct Level {
  Name name;
  int64_t count; /* members of a unit */
  Bytes link;    /* rate of one link of a member in one direction, a second */
  int64_t links; /* links of a member */
  Ps latency;    /* latency of one message */
  LinkKind kind;
  LinkRatio oversubscription;
} Level;

typedef enum Pattern {
  PATTERN_next, /* each member sends to the next one, as rings do */
  PATTERN_all   /* each member sends equally to all others */
} Pattern;

/* Returns the bytes a second that each of `n` members of a unit sends while all
 * of them send in this pattern, each with `transfers` transfers at a time: of
 * its devices, or over several rings.  Needs 2 <= n <= count. */
Bytes level_bandwidth(const Level *level, Pattern pattern, int64_t n,
                      int64_t transfers);

/* ---- cluster.c ---- */

typedef struct ClusterGroup {
  /* NULL means that the cluster has no groups, and this stands for all of it.
   */
  Name name;
  const ClusterDevice *device;
  int n_levels;
  Level *levels;  /* levels from the inside out */
  bool is_island; /* an island, see docs/cluster.md */
  Span span;      /* place where it names its device */
} ClusterGroup;

/* A file of measured curves, which stands for constants of the presets. */
typedef struct MeasuredCurve {
  Name name;
  const char *file; /* relative to the cluster file */
} MeasuredCurve;

typedef struct Cluster {
  Name name;
  int n_groups; /* number of groups, at least 1 */
  ClusterGroup *groups;
  int n_joining;
  Level *joining; /* level whose first one has the groups as members */
  int n_curves;
  MeasuredCurve *curves;
} Cluster;

enum {
  MAX_LEVELS = 16, /* levels of a group, and of those that join groups */
  MAX_CLUSTER_RANKS = 2147483647
};

int64_t group_ranks(const ClusterGroup *group);
int64_t cluster_ranks(const Cluster *cluster);
/* Returns the group of a rank; *out_local is the rank inside of it, unless
 * NULL. */
const ClusterGroup *cluster_group_of(const Cluster *cluster, int64_t rank,
                                     int64_t *out_local);
/* Returns the innermost level with both ranks in one unit.  Returns NULL if
 * they are equal. */
const Level *cluster_level_between(const Cluster *cluster, int64_t a,
                                   int64_t b);

/* ---- slice.c ---- */

/* The number of members of the units of a level that take part.  Units of which
 * no rank takes part do not count. */
typedef struct LevelShare {
  const Level *level;
  int64_t least, most;
} LevelShare;

/* Ranks with numbers in order, as a part of a cluster: what a stage sees.  Rank
 * r of the slice is rank first + r of the cluster. */
typedef struct SliceGroup {
  const ClusterGroup *group;
  int64_t first, n; /* ranks of the slice */
  /* Number of levels up to the first one with all of them in one unit. */
  int n_levels;
  LevelShare *levels;
} SliceGroup;

typedef struct ClusterSlice {
  const Cluster *cluster;
  int64_t first, n;
  int n_groups;
  SliceGroup *groups; /* groups with ranks of the slice, in order */
  int n_joining;      /* none where it lies in one group */
  LevelShare *joining;
  /* It has one group, and each level has equally many members in all units:
   * their numbers are the digits of a rank. */
  bool is_regular;
} ClusterSlice;

/* Returns some ranks of a cluster: 0 <= first, 1 <= n, first + n <=
 * cluster_ranks. */
ClusterSlice cluster_slice(Arena *arena, const Cluster *cluster, int64_t first,
                           int64_t n);
/* Counts the members of every level that the process group of the ranks first,
 * first + stride, ... has, inside out.  Levels of which no unit has two are
 * left out, so `*out` has those that the process group sends over.  It takes
 * size * levels steps. */
int cluster_shares(Arena *arena, const Cluster *cluster, int64_t first,
                   int64_t stride, int64_t size, LevelShare **out);

/* ---- cluster_text.c ---- */

/* Prints the canonical text: all devices with all constants, all settings. Read
 * again it is the same cluster. */
void cluster_print(Text *out, const Cluster *cluster);
/* Writes the hash of the canonical text: 32 hex digits and NUL. */
void cluster_hash(Arena *scratch, const Cluster *cluster, char out_hex[33]);

#endif
