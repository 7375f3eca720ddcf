/*
 * cluster.c -- loads the cluster that a command is given, and checks what a
 * model asks of its devices.
 */
#include "driver/internal.h"

#include <string.h>

enum { MOST_CLUSTER_BYTES = 16 << 20 };

const Cluster *driver_load_cluster(Module *module, const char *path) {
  Source *source = ARENA_NEW(module->arena, Source);
  source->path = name_intern(module->names, path);
  Status status = file_read(module->arena, path, MOST_CLUSTER_BYTES,
                            &source->text, &source->n);
  if (status.code != STATUS_ok) {
    diag(module->diags, DIAG_failed, SPAN_NONE, status.message);
    return NULL;
  }
  return frontend_read_cluster(module, source);
}

const Cluster *driver_chosen_cluster(Module *module,
                                     const CompileOptions *options) {
  const Source *detected = options->detected_cluster;
  return detected ? frontend_read_cluster(module, detected)
                  : driver_load_cluster(module, options->cluster);
}

/* ---- measured curves ---- */

static bool is_below(const char *file) {
  if (!*file || *file == '/') return false;
  for (const char *at = file; at; at = strchr(at, '/')) {
    if (*at == '/') at++;
    if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || !at[2])) return false;
  }
  return true;
}

static bool load_curve(Module *module, const MeasuredCurve *curve,
                       const char *cluster_path, Curves *out) {
  CurveKind kind = curve_find(curve->name);
  if (kind == N_CURVES) {
    diag(module->diags, DIAG_curve_unread, SPAN_NONE, curve->name);
    return true;
  }
  if (!is_below(curve->file)) {
    diag(module->diags, DIAG_curve_outside, SPAN_NONE, curve->file,
         curve->name);
    return false;
  }
  const char *slash = strrchr(cluster_path, '/');
  int n = slash ? (int)(slash - cluster_path) + 1 : 0;
  Source *source = ARENA_NEW(module->arena, Source);
  const char *path =
      arena_printf(module->arena, "%.*s%s", n, cluster_path, curve->file);
  source->path = name_intern(module->names, path);
  Status status = file_read(module->arena, path, MOST_CLUSTER_BYTES,
                            &source->text, &source->n);
  if (status.code != STATUS_ok) {
    diag(module->diags, DIAG_curve_failed, SPAN_NONE, curve->name,
         status.message);
    return false;
  }
  return curves_read(module->arena, module->diags, source, kind, out);
}

bool driver_load_curves(Module *module, const Cluster *cluster,
                        const char *cluster_path, Curves *out) {
  bool is_right = true;
  for (int i = 0; i < cluster->n_curves; i++)
    is_right &= load_curve(module, &cluster->curves[i], cluster_path, out);
  return is_right;
}

bool driver_cost_model(const Compilation *c, const ClusterSlice *slice,
                       CostModel *out) {
  const SliceGroup *first = &slice->groups[0];
  const Curves *curves = out->curves;
  if (!curves) {
    Curves *loaded = ARENA_NEW(c->module->arena, Curves);
    if (!driver_load_curves(c->module, slice->cluster, c->options->cluster,
                            loaded))
      return false;
    curves = loaded;
  }
  cost_model_of(first->group->device, out);
  cost_share_machine(out, first->group, first->n);
  out->curves = curves;
  return true;
}

bool driver_check_ranks(Module *module, const Cluster *cluster, int64_t ranks,
                        const char *asker) {
  int64_t most = cluster_ranks(cluster);
  if (ranks <= most) return true;
  diag(module->diags, DIAG_cluster_ranks, SPAN_NONE, asker, (long long)ranks,
       cluster->name, (long long)most);
  return false;
}

bool driver_check_plan_ranks(Module *module, const Cluster *cluster,
                             const Pins *pins, int64_t ranks) {
  int64_t most = cluster_ranks(cluster);
  if (ranks <= most) return true;
  Span span = pins ? pins->ranks.span : SPAN_NONE;
  if (pins && !span.source) span = pins->mesh_span;
  if (pins && !span.source && pins->stages.n > 0)
    span = pins->stages.data[0].stage.span;
  Diag *d = diag(module->diags, DIAG_cluster_ranks, span, "the plan",
                 (long long)ranks, cluster->name, (long long)most);
  diag_help(d, "write fewer ranks, or give another file with --cluster");
  return false;
}

bool driver_check_compiled_ranks(const Compilation *c) {
  return c->options->ranks == c->ranks
             ? driver_check_ranks(c->module, c->cluster, c->ranks, "--ranks")
             : driver_check_plan_ranks(c->module, c->cluster, c->pins,
                                       c->ranks);
}

const char *driver_cluster_target(const Cluster *cluster, int64_t ranks) {
  const char *target = cluster->groups[0].device->target;
  int64_t first = group_ranks(&cluster->groups[0]);
  for (int i = 1; i < cluster->n_groups && (!ranks || first < ranks); i++) {
    if (cluster->groups[i].device->target != target) return NULL;
    first += group_ranks(&cluster->groups[i]);
  }
  return target;
}

bool driver_check_one_target(const Compilation *c) {
  const Cluster *cluster = c->cluster;
  const ClusterDevice *first = cluster->groups[0].device;
  if (driver_cluster_target(cluster, c->options->ranks)) return true;
  int other = 1;
  while (cluster->groups[other].device->target == first->target) other++;
  const ClusterDevice *device = cluster->groups[other].device;
  Diag *d =
      diag(c->module->diags, DIAG_several_back_ends, SPAN_NONE, first->name,
           first->target, device->name, device->target, cluster->name);
  diag_help(d, "--ranks N takes the first N ranks");
  return false;
}

/* "f64, f32 and f16" */
static const char *known_dtypes(Arena *arena, const ClusterDevice *device) {
  const char *names[N_DTYPES], *list = "";
  int n = 0;
  for (int i = 0; i < N_DTYPES; i++)
    if (device_flops(device, (DType)i) > 0) names[n++] = dtype_name((DType)i);
  for (int i = 0; i < n; i++)
    list = arena_printf(arena, "%s%s%s", list,
                        i == 0      ? ""
                        : i < n - 1 ? ", "
                                    : " and ",
                        names[i]);
  return list;
}

static void check_dtype(const Compilation *c, const ClusterGroup *group) {
  const Precision *precision = &c->model->precision;
  Diags *diags = c->module->diags;
  if (device_flops(group->device, precision->compute) > 0 ||
      diags_have(diags, DIAG_device_dtype, precision->span))
    return;
  Diag *d = diag(diags, DIAG_device_dtype, precision->span, group->device->name,
                 dtype_name(precision->compute));
  diag_note(d, group->span, "the cluster names the device here");
  diag_help(d, "it computes in %s",
            known_dtypes(c->module->arena, group->device));
}

bool driver_check_devices(const Compilation *c) {
  int64_t ranks = c->options->ranks > 0 ? c->options->ranks : INT64_MAX;
  int64_t first = 0;
  for (int i = 0; i < c->cluster->n_groups && first < ranks; i++) {
    check_dtype(c, &c->cluster->groups[i]);
    first += group_ranks(&c->cluster->groups[i]);
  }
  return diags_errors(c->module->diags) == 0;
}
