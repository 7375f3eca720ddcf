/*
 * inspect_json.c -- prints an Inspection as the fields of a JSON object.  The
 * page of --html shows numbers of this object alone, each under its key.
 */
#include "tools/show/search_report.h"
#include "tools/show/show_stages.h"

static void add_key(Text *out, const char *key) {
  text_printf(out, ",\"%s\":", key);
}

static void add_string(Text *out, const char *key, const char *value) {
  add_key(out, key);
  text_add_json(out, value);
}

static void add_real(Text *out, const char *key, double value) {
  add_key(out, key);
  text_add_real(out, value);
}

static void add_integer(Text *out, const char *key, int64_t value) {
  text_printf(out, ",\"%s\":%lld", key, (long long)value);
}

void inspect_print_rates_json(Text *out, const Inspection *in) {
  double seconds = (double)in->priced->price.step * 1e-12;
  add_integer(out, "samples", in->samples);
  add_integer(out, "items", in->items);
  add_real(out, "samples_per_s",
           seconds > 0 ? (double)in->samples / seconds : 0);
  if (in->has_tokens)
    add_real(out, "tokens_per_s",
             seconds > 0 ? (double)in->items / seconds : 0);
  add_real(out, "flops", in->flops);
  add_real(out, "peak_flops", in->peak_flops);
  add_real(out, "mfu", in->mfu);
  add_string(out, "mfu_formula", inspect_mfu_formula());
}

static void add_head(Text *out, const Inspection *in) {
  const Priced *p = in->priced;
  text_add(out, "\"model\":");
  text_add_json(out, p->c->model->name);
  add_string(out, "plan", in->plan);
  add_string(out, "cluster", p->cluster->name);
  add_string(out, "device", priced_devices(out->arena, p));
  add_integer(out, "n_ranks", p->c->ranks);
  add_integer(out, "step_ps", p->price.step);
  inspect_print_rates_json(out, in);
  add_integer(out, "peak_bytes", p->peak);
  add_integer(out, "memory_bytes", p->memory);
  add_integer(out, "launches", p->price.n_launches);
  add_integer(out, "transfers", p->price.n_transfers);
  text_add(out, ",");
  priced_print_json(out, p);
  if (p->step->edges.n > 0) {
    text_add(out, ",");
    show_stages_json(out, p->c);
    add_integer(out, "shown_stage", p->stage->number);
  }
  text_add(out, ",\"shares\":{");
  for (int k = 0; k < N_COST_PARTS; k++) {
    if (!price_has_part(&p->price, (CostTerm)k)) continue;
    text_printf(out, "%s\"%s\":", k ? "," : "",
                cost_term_info((CostTerm)k)->name);
    text_add_real(out, inspect_share(p->price.parts[k], p->price.step));
  }
  text_add(out, "}");
}

/* Parts that are not zero. */
static void add_parts(Text *out, const Ps *parts) {
  text_add(out, ",\"parts_ps\":{");
  for (int k = 0, n = 0; k < N_COST_PARTS; k++)
    if (parts[k] > 0)
      text_printf(out, "%s\"%s\":%lld", n++ ? "," : "",
                  cost_term_info((CostTerm)k)->name, (long long)parts[k]);
  text_add(out, "}");
}

/* `is_folded`: a row of several paths says how many. */
static void add_paths(Text *out, const Inspection *in, bool is_folded) {
  const PathTable *table = is_folded ? &in->paths : &in->single;
  text_add(out, is_folded ? ",\"repeats\":[" : ",\"paths\":[");
  for (int i = 0; i < table->rows.n; i++) {
    const PathRow *row = &table->rows.data[i];
    text_add(out, i ? ",\n{\"path\":" : "\n{\"path\":");
    text_add_json(out, path_text(out->arena, row));
    if (is_folded) add_integer(out, "paths", row->n_paths);
    if (is_folded)
      add_real(out, "share", inspect_share(row->time, in->priced->price.step));
    add_integer(out, "time_ps", row->time);
    add_integer(out, "at_peak_bytes", row->at_peak);
    add_integer(out, "persistent_bytes", row->persistent);
    add_parts(out, row->parts);
    text_add(out, "}");
  }
  text_add(out, "]");
}

static void add_kinds(Text *out, const Inspection *in) {
  text_add(out, ",\"memory\":[");
  for (int i = 0; i < in->kinds.n; i++) {
    const KindRow *row = &in->kinds.data[i];
    text_printf(out, "%s{\"kind\":\"%s\"", i ? "," : "", row->name);
    add_integer(out, "at_peak_bytes", row->at_peak);
    add_integer(out, "most_bytes", row->most);
    text_printf(out, ",\"persistent\":%s}",
                row->is_persistent ? "true" : "false");
  }
  text_add(out, "]");
  add_integer(out, "live_bytes", in->peak.live);
  add_integer(out, "hole_bytes", in->holes);
  add_integer(out, "other_bytes", in->others);
}

static void add_names(Text *out, const Inspection *in) {
  const Mesh *mesh = &in->priced->stage->graph->mesh;
  text_add(out, ",\"mesh\":[");
  for (int a = 0; a < mesh->n_axes; a++) {
    text_add(out, a ? ",{\"axis\":" : "{\"axis\":");
    text_add_json(out, mesh->axes[a].name);
    text_printf(out, ",\"size\":%d,\"sequential\":%s}", mesh->axes[a].size,
                mesh->axes[a].is_sequential ? "true" : "false");
  }
  text_add(out, "],\"names\":[");
  for (int i = 0; i < in->names.n; i++) {
    const NameRow *row = &in->names.data[i];
    text_add(out, i ? ",{\"name\":" : "{\"name\":");
    text_add_json(out, row->dim);
    add_string(out, "over", inspect_axes(out->arena, mesh, row->axes));
    add_integer(out, "values", row->n_values);
    text_add(out, "}");
  }
  text_add(out, "]");
}

static void add_parameters(Text *out, const Inspection *in) {
  const Mesh *mesh = &in->priced->stage->graph->mesh;
  text_add(out, ",\"parameters\":[");
  for (int i = 0; i < in->parameters.n; i++) {
    const ParameterRow *row = &in->parameters.data[i];
    Text type = text_create(out->arena);
    type_print(&type, row->type, mesh);
    text_add(out, i ? ",\n{\"path\":" : "\n{\"path\":");
    text_add_json(out, path_text(out->arena, &row->paths));
    add_integer(out, "paths", row->paths.n_paths);
    add_integer(out, "bytes", row->bytes);
    add_string(out, "type", text_string(&type));
    text_add(out, ",\"dims\":[");
    for (int d = 0; d < row->type->rank; d++) {
      text_add(out, d ? ",{\"name\":" : "{\"name\":");
      text_add_json(out, row->type->dims[d].name);
      add_integer(out, "size", row->type->dims[d].size);
      text_add(out, "}");
    }
    text_add(out, "]}");
  }
  text_add(out, "]");
}

static void add_lines(Text *out, const Inspection *in) {
  text_add(out, ",\"lines\":[");
  for (int i = 0; i < in->lines.lines.n; i++) {
    const PlanLine *line = &in->lines.lines.data[i];
    text_add(out, i ? ",\n{\"text\":" : "\n{\"text\":");
    text_add_json(out, line->text);
    if (line->spans.n > 0) {
      int row, column;
      span_locate(line->spans.data[0], &row, &column);
      add_integer(out, "line", row);
    }
    add_integer(out, "transfers", line->n_transfers);
    add_integer(out, "sent_bytes", line->sent);
    add_integer(out, "busy_ps", line->busy);
    add_integer(out, "exposed_ps", line->exposed);
    if (line->is_legal) {
      add_integer(out, "step_without_ps", line->step_without);
      add_integer(out, "peak_without_bytes", line->peak_without);
      add_integer(out, "step_change_ps", line->step_change);
      add_integer(out, "peak_change_bytes", line->peak_change);
    } else if (line->is_tried) {
      add_string(out, "no_plan", line->why);
    }
    text_add(out, "}");
  }
  text_add(out, "]");
  add_integer(out, "kernels_ps", plan_lines_rest(&in->lines, inspect_step(in)));
}

static void add_bar(Text *out, const TimelineBar *bar) {
  text_printf(out, "{\"begin_ps\":%lld,\"end_ps\":%lld,\"spans\":%d",
              (long long)bar->begin, (long long)bar->end, bar->n);
  add_string(out, "phase", phase_name(bar->phase));
  add_string(out, "first", bar->first);
  if (bar->n > 1) add_string(out, "last", bar->last);
  add_parts(out, bar->parts);
  text_add(out, "}");
}

static void add_timelines(Text *out, const Inspection *in) {
  text_add(out, ",\"timelines\":[");
  for (int i = 0; i < in->n_timelines; i++) {
    const Timeline *of = &in->timelines[i];
    text_add(out, i ? ",\n{\"title\":" : "\n{\"title\":");
    text_add_json(out, of->title);
    add_integer(out, "class", of->class);
    add_integer(out, "begin_ps", of->begin);
    add_integer(out, "end_ps", of->end);
    text_add(out, ",\"lanes\":[");
    for (int k = 0; k < of->n_lanes; k++) {
      text_add(out, k ? ",\n{\"name\":" : "\n{\"name\":");
      text_add_json(out, of->lanes[k].name);
      text_add(out, ",\"bars\":[");
      for (int b = 0; b < of->lanes[k].bars.n; b++) {
        if (b) text_add(out, ",\n");
        add_bar(out, &of->lanes[k].bars.data[b]);
      }
      text_add(out, "]}");
    }
    text_add(out, "]}");
  }
  text_add(out, "]");
}

static void add_call(Text *out, const CallBar *bar) {
  text_printf(out,
              "{\"begin_ps\":%lld,\"end_ps\":%lld,\"calls\":%d,"
              "\"call\":\"%s\"",
              (long long)bar->begin, (long long)bar->end, bar->n,
              call_bar_name(bar));
  if (bar->stage >= 0) add_integer(out, "stage", bar->stage);
  if (bar->microbatch >= 0) add_integer(out, "microbatch", bar->microbatch);
  text_add(out, "}");
}

/* The calls of each class, in the order of `ranks`. */
static void add_calls(Text *out, const Inspection *in) {
  if (in->n_calls == 0) return;
  text_add(out, ",\"calls\":[");
  for (int c = 0; c < in->n_calls; c++) {
    text_add(out, c ? ",\n[" : "\n[");
    for (int i = 0; i < in->calls[c].n; i++) {
      text_add(out, i ? ",\n" : "\n");
      add_call(out, &in->calls[c].data[i]);
    }
    text_add(out, "]");
  }
  text_add(out, "]");
}

static void add_moments(Text *out, const Inspection *in) {
  text_add(out, ",\"memory_over_time\":[");
  for (int i = 0; i < in->n_moments; i++) {
    const MemoryMoment *moment = &in->moments[i];
    text_printf(out, "%s{\"time_ps\":%lld", i ? ",\n" : "\n",
                (long long)moment->time);
    for (int k = 0; k < N_PEAK_KINDS; k++)
      if (in->peak.most[k] > 0)
        add_integer(out, peak_kind_name((PeakKind)k), moment->bytes[k]);
    text_add(out, "}");
  }
  text_add(out, "]");
}

void inspect_print_json(Text *out, const Inspection *in) {
  add_head(out, in);
  add_kinds(out, in);
  add_names(out, in);
  add_parameters(out, in);
  add_lines(out, in);
  add_paths(out, in, true);
  add_paths(out, in, false);
  add_timelines(out, in);
  add_calls(out, in);
  add_moments(out, in);
  if (in->search) search_report_json(out, in->search);
}
