/*
 * command_tune.c -- implements `dnnc tune`: measures kernels and links of this
 * machine for a model, and compares plans with their predictions.
 *
 * Links come first, because they are quick, then kernels for 1, 2, ... ranks:
 * the first probe of each, then the others, until the budget for probes is used
 * up, which is half of it. Links take half of that at most.  While there is
 * some left, all probes run again.  The other half is for plans.  With
 * --no-plans all of it measures. If no probe has run, plans do all the same.
 */
#include "runtime/cuda/describe.h"
#include "runtime/launch/machine.h"
#include "tools/tune/tune.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- the command line ---- */

/* "90s", "10m", "1.5h", in milliseconds; 0: it is none. */
static int64_t read_duration(const char *text) {
  static const struct {
    const char *unit;
    double ms;
  } units[] = {{"s", 1e3}, {"m", 6e4}, {"min", 6e4}, {"h", 3.6e6}};
  char *end;
  errno = 0;
  double number = strtod(text, &end);
  if (errno || end == text || !(number > 0) || number > 1e6) return 0;
  for (int i = 0; i < ARRAY_LENGTH(units); i++)
    if (strcmp(end, units[i].unit) == 0) return (int64_t)(number * units[i].ms);
  return 0;
}

static int64_t read_budget(const Options *options) {
  const char *budget = options->budget ? options->budget : "10m";
  int64_t ms = read_duration(budget);
  if (ms < 1000)
    message_print("dnnc: error: --budget takes a time of at least a second, as "
                  "in 90s, 10m or 2h, not '%s'\n",
                  budget);
  return ms < 1000 ? 0 : ms;
}

/* Two plans with the same kernels are one to whoever measures kernels, however
 * their axes are called. */
static int hold_out(Tuning *tuning, const char *plan) {
  Tool *tool = tuning->tool;
  Compilation c;
  tool->options.plan = plan;
  int code = tool_compile(tool, &c);
  tool->options.plan = NULL;
  if (code != EXIT_done) return code;
  vec_push(tuning->arena, &tuning->held_out, tool_kernels(tool, &c));
  return EXIT_done;
}

/* A mistake in a plan to be compared is told before hours of measuring. */
static int check_plan(Tuning *tuning, const char *plan) {
  Tool *tool = tuning->tool;
  Compilation c;
  tool->options.plan = plan;
  int code = tool_load(tool, &c);
  tool->options.plan = NULL;
  return code;
}

static int load(Tuning *tuning, Compilation *model) {
  Tool *tool = tuning->tool;
  if (tool->options.no_plans && tool->options.plans.n > 0) {
    message_print("dnnc: error: --plan and --no-plans exclude each other\n");
    return EXIT_user;
  }
  int code = tool_load(tool, model);
  if (code != EXIT_done) return code;
  tuning->model = model;
  if (!model->model->has_train) {
    message_print("dnnc: error: '%s' has no train block\n", model->model->name);
    return EXIT_user;
  }
  for (int i = 0; i < tool->options.hold_out.n && code == EXIT_done; i++)
    code = hold_out(tuning, tool->options.hold_out.data[i]);
  for (int i = 0; i < tool->options.plans.n && code == EXIT_done; i++)
    if (!tool_is_auto_plan(tool->options.plans.data[i]))
      code = check_plan(tuning, tool->options.plans.data[i]);
  return code;
}

/* ---- measuring ---- */

/* The ranks that this machine has a device for. */
static int most_ranks(Tuning *tuning) {
  int n_gpus;
  GpuDescription *gpus;
  Machine machine;
  if (strcmp(tuning->model->target.backend->device, "cuda") != 0)
    return machine_read(tuning->arena, "", &machine).code == STATUS_ok
               ? (int)machine.cores.value
               : 1;
  Status status = cuda_describe(tuning->arena, &n_gpus, &gpus);
  if (status.code == STATUS_ok && n_gpus > 0) return n_gpus;
  message_print("dnnc: error: no GPU to measure%s%s\n",
                status.code == STATUS_ok ? "" : ": ",
                status.code == STATUS_ok ? "" : status.message);
  return 0;
}

/* Probes that cannot run are left out, as long as there is time for others.
 * The first time half of what is left is for kernels. */
static bool measure_links(Tuning *tuning) {
  int64_t until_ms = tuning->until_ms;
  Probes probes = tune_probes(tuning, tuning->most_ranks);
  const char *why = "there is one core";
  bool is_measured = false;
  tuning->is_late = false;
  if (!tuning->has_links) tuning->until_ms -= tune_left_ms(tuning) / 2;
  for (int i = 0; tuning->most_ranks > 1 && i < probes.n && !is_measured &&
                  !tuning->is_late && !tool_is_stopped();
       i++)
    is_measured = tune_measure_links(tuning, &probes.data[i], &why);
  tuning->until_ms = until_ms;
  if (tuning->is_late) why = "it took longer than half of the budget";
  if (is_measured)
    tune_say(tuning, "measured collectives between %d ranks\n",
             tuning->most_ranks);
  else
    tune_say(tuning, "no links were measured: %s\n", why);
  return is_measured;
}

static void measure_probe(Tuning *tuning, const Probe *probe) {
  const char *why = "the budget is used up";
  int before = tuning->kernels.rows.n;
  tuning->is_late = tuning->is_late || tune_left_ms(tuning) == 0;
  tuning->is_slow = false;
  if (tune_left_ms(tuning) > 0 && tune_measure(tuning, probe, &why)) {
    if (tuning->n_measured++ == 0) tuning->code = tune_write_cluster(tuning);
    tune_say(tuning, "measured %s: %d new kernels\n", probe->what,
             tuning->kernels.rows.n - before);
  } else {
    tuning->n_rejected++;
    tune_say(tuning, "left out %s: %s\n", probe->what, why);
  }
}

/* The probes of so many ranks from `begin` on, at most n. */
static void measure_kernels(Tuning *tuning, int ranks, int begin, int n) {
  Probes probes = tune_probes(tuning, ranks);
  int end = n < probes.n - begin ? begin + n : probes.n;
  for (int i = begin; i < end && !tool_is_stopped() && !tuning->code; i++) {
    Probe smaller;
    measure_probe(tuning, &probes.data[i]);
    /* From kernels of a smaller batch curves lead to those of the model. */
    if (tuning->n_measured == 0 && tuning->is_slow &&
        tune_smaller_batch(tuning, &probes.data[i], &smaller))
      measure_probe(tuning, &smaller);
  }
}

/* A machine is slower for seconds at a time, so the rounds are apart. */
static void repeat(Tuning *tuning) {
  int rounds = tuning->n_measured > 0, n_near, n_far;
  while (rounds > 0 && tune_measure_again(tuning)) rounds++;
  if (rounds > 1) tune_say(tuning, "measured all of them %d times\n", rounds);
  tune_count_runs(tuning, &n_near, &n_far);
  if (n_far > 0)
    tune_say(
        tuning,
        "%d of %d runs count only where there are no others: cores were "
        "more than twice as far apart as in the nearest, %lld ns there and "
        "back; the host of a virtual machine moves them\n",
        n_far, n_near + n_far, (long long)tuning->least_apart_ns);
}

/* Until cores were near meanwhile: the probes, too, would only wait for that.
 * In a job others have measured them. */
static void measure_links_again(Tuning *tuning) {
  while (tuning->links_took_ms > 0 && !tool_is_stopped() &&
         !tune_is_near(tuning, tuning->links_apart_ns) &&
         tune_wait_until_near(tuning, tuning->links_took_ms) &&
         tune_has_left(tuning, tuning->links_took_ms))
    if (!measure_links(tuning)) break;
}

static int measure(Tuning *tuning) {
  tuning->profile = (TuneTable){.header = "path,phase,kernel,cores,ps,runs",
                                .ending = ".profile",
                                .has_runs = true};
  tuning->kernels =
      (TuneTable){.header = "op,dtype,cores,batch,m,n,k,flops,bytes,ps",
                  .ending = ".kernels.csv"};
  int rank;
  if (!tune_is_job(&rank)) measure_links(tuning); /* a job did */
  tuning->is_late = false;
  for (int ranks = 1; ranks <= tuning->most_ranks; ranks *= 2)
    measure_kernels(tuning, ranks, 0, 1);
  for (int ranks = 1; ranks <= tuning->most_ranks; ranks *= 2)
    measure_kernels(tuning, ranks, 1, INT_MAX);
  measure_links_again(tuning);
  repeat(tuning);
  if (tuning->n_measured > 0)
    return tuning->code ? tuning->code : tune_write_cluster(tuning);
  if (tuning->has_links) return tune_write_cluster(tuning);
  if (tool_is_stopped()) return EXIT_machine;
  if (tuning->tool->options.no_plans) return tune_report_nothing(tuning);
  tune_say(tuning, "nothing was measured, so plans are predicted by constants "
                   "of the devices\n");
  tuning->prices = arena_printf(tuning->arena, "%s/detected", tuning->folder);
  return tune_write_cluster(tuning);
}

static void print_result(const Tuning *tuning) {
  const char *name = tuning->name;
  bool has_kernels = tuning->n_measured > 0;
  if (!tune_has_measured(tuning)) return;
  tune_say(tuning,
           "%d probes measured, %d left out; %d kernels and their work\n"
           "%s.cluster%s%s%s: 'dnnc simulate %s --cluster %s.cluster%s%s%s'\n",
           tuning->n_measured, tuning->n_rejected, tuning->kernels.rows.n, name,
           has_kernels ? " and " : "", has_kernels ? name : "",
           has_kernels ? ".profile" : "", tuning->tool->options.subject, name,
           has_kernels ? " --profile " : "", has_kernels ? name : "",
           has_kernels ? ".profile" : "");
}

static int end(const Tuning *tuning, int code) {
  codegen_remove_tree(tuning->arena, tuning->folder);
  tool_end_as_signalled();
  return code;
}

static int compare_plans(Tuning *tuning) {
  TunePlans plans = {0};
  int code = tune_plans(tuning, &plans);
  if (code != EXIT_done) return code;
  if (plans.n == 0)
    return tune_has_measured(tuning) ? code : tune_report_nothing(tuning);
  return tune_compare(tuning, &plans);
}

int command_tune(Tool *tool) {
  Compilation model;
  int64_t budget = read_budget(&tool->options), begin = child_now_ms();
  if (!budget) return EXIT_user;
  Tuning tuning = {.tool = tool,
                   .arena = tool->arena,
                   .name = tool_tuned_name(tool),
                   .budget_ms = budget};
  tuning.prices = tuning.name;
  int code = load(&tuning, &model);
  if (code != EXIT_done) return code;
  tuning.most_ranks = most_ranks(&tuning);
  if (tuning.most_ranks == 0) return EXIT_machine;
  tool_hold_signals();
  int rank;
  tuning.until_ms = begin + (tool->options.no_plans ? budget : budget / 2);
  tuning.folder = tool_scratch_folder(tool, NULL);
  if (!tuning.folder) return EXIT_machine;
  if (tune_is_job(&rank)) {
    const char *why;
    tuning.has_links = tune_measure_job(&tuning, &why);
    /* Rank 0 says what is missing; a rank that fails would end its work. */
    if (rank > 0) return end(&tuning, EXIT_done);
    tune_say(&tuning, "%s%s\n",
             tuning.has_links ? "measured collectives between the ranks of the "
                                "job"
                              : "no links were measured: ",
             tuning.has_links ? "" : why);
  }
  code = measure(&tuning);
  tuning.until_ms = begin + budget;
  if (code == EXIT_done) print_result(&tuning);
  if (code == EXIT_done) code = compare_plans(&tuning);
  return end(&tuning, code);
}
