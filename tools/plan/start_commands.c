/*
 * start_commands.c -- says how the program of a plan is built and started.
 *
 *     dnnc build m.dnn --plan p.plan -o p.bundle && p.bundle/run
 *     ... && mpirun --hostfile HOSTS -n 16 p.bundle/rank-0000
 *     ... && srun -n 16 --ntasks-per-node=4 p.bundle/rank-0000
 *
 * On one machine `run` starts the ranks.  All files rank-0000, rank-0001, ...
 * are one program, which asks MPI or Slurm for its number.
 */
#include "tools/plan/start_commands.h"

#include <stdlib.h>
#include <string.h>

/* ---- words of a shell ---- */

/* In quotes where a shell would not take it as one word. */
static void add_word(Text *out, const char *word) {
  static const char plain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "_-./=,:+@%";
  if (*word && word[strspn(word, plain)] == '\0') {
    text_add(out, word);
    return;
  }
  text_add(out, "'");
  for (const char *at = word; *at; at++)
    if (*at == '\'')
      text_add(out, "'\\''");
    else
      text_add_n(out, at, 1);
  text_add(out, "'");
}

/* "vgg.bundle" of the plan file "vgg.plan"; no file is named yet: "FILE". */
static const char *bundle_of(Tool *tool, const char *plan) {
  size_t n = strlen(plan);
  if (n > 5 && strcmp(plan + n - 5, ".plan") == 0) n -= 5;
  return arena_printf(tool->arena, "%.*s.bundle", (int)n, plan);
}

/* ---- machines ---- */

/* The innermost level is a machine, if its links are those of one. */
static bool is_inside_machine(const Level *level) {
  enum { MOST_LATENCY_US = 10, PS_PER_US = 1000000 };
  bool is_network = level->kind == LINK_fat_tree || level->kind == LINK_torus ||
                    level->kind == LINK_wan;
  return !is_network && level->latency <= MOST_LATENCY_US * PS_PER_US;
}

/* Ranks of a machine of the group that has the first rank. */
static int64_t ranks_of_machine(const Cluster *cluster) {
  const ClusterGroup *group = &cluster->groups[0];
  bool is_inside = group->n_levels > 0 && is_inside_machine(&group->levels[0]);
  return is_inside ? group->levels[0].count : 1;
}

/* `dnnc cluster detect` names the variables of Slurm that it has read. */
static bool is_slurm(Tool *tool) {
  enum { MOST_CLUSTER_BYTES = 16 << 20 };
  const char *text;
  size_t n;
  if (getenv("SLURM_JOB_ID")) return true;
  return file_read(tool->arena, tool->options.cluster, MOST_CLUSTER_BYTES,
                   &text, &n)
                 .code == STATUS_ok &&
         strstr(text, "SLURM_JOB_") != NULL;
}

/* ---- commands ---- */

static void add_build(Text *out, Tool *tool, const Compilation *c,
                      const char *plan, const char *bundle) {
  const Options *options = &tool->options;
  text_add(out, "dnnc build ");
  add_word(out, options->subject);
  for (int i = 0; i < options->overrides.n; i++) {
    const Override *size = &options->overrides.data[i];
    text_add(out, " ");
    add_word(out, arena_printf(tool->arena, "%s=%s", size->name, size->value));
  }
  text_add(out, " --plan ");
  add_word(out, plan);
  if (strcmp(c->target.backend->name, "cpu") != 0)
    text_printf(out, " --target %s", c->target.backend->name);
  text_add(out, " -o ");
  add_word(out, bundle);
}

static void add_start(Text *out, Tool *tool, const Compilation *c,
                      const char *bundle) {
  int64_t here = ranks_of_machine(c->cluster);
  bool is_one_machine = c->ranks <= here, uses_slurm = is_slurm(tool);
  if (is_one_machine && !uses_slurm) {
    const char *here_or_there = strchr(bundle, '/') ? "" : "./";
    add_word(out, arena_printf(tool->arena, "%s%s/run", here_or_there, bundle));
    return;
  }
  if (uses_slurm)
    text_printf(out, "srun -n %d --ntasks-per-node=%d ", c->ranks,
                c->ranks < here ? c->ranks : (int)here);
  else
    text_printf(out, "mpirun --hostfile HOSTS -n %d ", c->ranks);
  add_word(out, arena_printf(tool->arena, "%s/rank-0000", bundle));
}

void start_commands(Text *out, Tool *tool, const Compilation *c) {
  const char *plan = tool->options.output ? tool->options.output : "FILE";
  const char *bundle = bundle_of(tool, plan);
  add_build(out, tool, c, plan, bundle);
  text_add(out, " && ");
  add_start(out, tool, c, bundle);
}
