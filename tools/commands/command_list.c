/*
 * command_list.c -- implements `dnnc list TABLE`, which prints a table of the
 * compiler.
 */
#include "ir/pipeline/pipeline.h"
#include "price/cost.h"
#include "tools/commands/tools.h"

#include <stdio.h>
#include <string.h>

static void list_ops(Text *out) {
  text_printf(out, "%-18s %-26s %s\n", "operator", "sharding", "value");
  for (int i = 0; i < N_OPS; i++) {
    const OpInfo *info = op_info((Op)i);
    text_printf(out, "%-18s %-26s %s\n", info->name,
                info->sharding ? info->sharding : "",
                info->value ? info->value : "");
  }
}

static void list_passes(Text *out) {
  for (int i = 0; i < pass_count(); i++) {
    const PassInfo *info = pass_info(i);
    text_printf(out, "%2d  %-18s -O%d  %s%s\n", i + 1,
                pass_label(out->arena, i), info->level,
                *info->does ? info->does : info->why,
                info->training_only ? " (training)" : "");
  }
}

/* Which graphs a pass could change. */
static const char *pass_graphs(Arena *arena, const PassInfo *info) {
  if (info->training_only) return "training";
  if (info->only < 0) return "all";
  return arena_printf(arena, "with `%s`", op_info((Op)info->only)->name);
}

static void list_passes_markdown(Text *out) {
  text_add(out, "| pass | at | graphs | what it does | why here |\n"
                "|---|---|---|---|---|\n");
  for (int i = 0; i < pass_count(); i++) {
    const PassInfo *info = pass_info(i);
    text_printf(out, "| `%s` | -O%d | %s | %s | %s |\n",
                pass_label(out->arena, i), info->level,
                pass_graphs(out->arena, info),
                *info->does ? info->does : "again", info->why);
  }
}

static void list_devices(Text *out) {
  for (int i = 0; i < device_preset_count(); i++) {
    const DevicePreset *preset = device_preset(i);
    text_printf(out, "%s%s: %s (target %s)\n", i ? "\n" : "", preset->name,
                preset->what, preset->target);
    for (int k = 0; k < N_DEVICE_FIELDS; k++) {
      const DeviceConstant *constant =
          device_preset_constant(i, (DeviceField)k);
      const DeviceFieldInfo *field = device_field_info((DeviceField)k);
      if (!constant) continue;
      const char *value =
          quantity_text(out->arena, field->unit, constant->value);
      text_printf(out, "  %-10s %-13s %-11s %s  %s\n", field->name, value,
                  constant->mark, constant->date, constant->source);
    }
  }
}

static void list_constant_json(Text *out, const DeviceConstant *constant) {
  const DeviceFieldInfo *field = device_field_info(constant->field);
  text_printf(out,
              "{\"name\":\"%s\",\"unit\":\"%s\",\"value\":%lld,\"mark\":"
              "\"%s\",\"date\":\"%s\",\"source\":",
              field->name, unit_info(field->unit)->name,
              (long long)constant->value, constant->mark, constant->date);
  text_add_json(out, constant->source);
  text_add(out, "}");
}

/* One object a line. */
static void list_devices_json(Text *out) {
  for (int i = 0; i < device_preset_count(); i++) {
    const DevicePreset *preset = device_preset(i);
    text_printf(out,
                "{\"device\":\"%s\",\"target\":\"%s\",\"what\":", preset->name,
                preset->target);
    text_add_json(out, preset->what);
    text_add(out, ",\"constants\":[");
    for (int k = 0, n = 0; k < N_DEVICE_FIELDS; k++) {
      const DeviceConstant *constant =
          device_preset_constant(i, (DeviceField)k);
      if (!constant) continue;
      if (n++) text_add(out, ",");
      list_constant_json(out, constant);
    }
    text_add(out, "]}\n");
  }
}

static void list_schedules(Text *out) {
  for (int i = 0; i < pipeline_schedule_count(); i++) {
    const PipelineSchedule *schedule = pipeline_schedule(i);
    text_printf(out, "%-26s %s%s\n",
                pipeline_schedule_call(out->arena, schedule), schedule->meaning,
                schedule->is_compiled || schedule->is_pinned
                    ? ""
                    : " (in plans: not supported yet)");
  }
}

static void list_commands(Text *out) {
  options_overview(out);
}

static void list_options(Text *out) {
  options_markdown(out);
}

typedef void ListTable(Text *out);

typedef struct ListInfo {
  const char *name;
  ListTable *print, *markdown, *json; /* NULL: not in this form */
} ListInfo;

/* The form of the table that the options ask for; NULL after a message. */
static ListTable *list_form(const Options *options, const ListInfo *table) {
  if (options->markdown && !table->markdown) {
    message_print("dnnc: error: '%s' is not printed as Markdown; 'passes' "
                  "and 'options' are\n",
                  table->name);
    return NULL;
  }
  if (options->json && !table->json) {
    message_print("dnnc: error: '%s' is not printed as JSON; 'devices' is\n",
                  table->name);
    return NULL;
  }
  return options->markdown ? table->markdown
         : options->json   ? table->json
                           : table->print;
}

static void list_terms(Text *out) {
  for (int i = 0; i < N_COST_TERMS; i++) {
    const CostTermInfo *info = cost_term_info((CostTerm)i);
    text_printf(out, "%-15s %-7s %s\n%23s %s\n", info->name,
                info->is_part ? "part" : "effect", info->meaning, "",
                info->source);
  }
}

int command_list(Tool *tool) {
  static const ListInfo tables[] = {
      {"ops", list_ops, NULL, NULL},
      {"passes", list_passes, list_passes_markdown, NULL},
      {"schedules", list_schedules, NULL, NULL},
      {"optimizers", frontend_list_optimizers, NULL, NULL},
      {"devices", list_devices, NULL, list_devices_json},
      {"terms", list_terms, NULL, NULL},
      {"models", tool_list_models, NULL, NULL},
      {"commands", list_commands, NULL, NULL},
      {"options", list_options, list_options, NULL},
  };
  const char *names[ARRAY_LENGTH(tables)];
  for (int i = 0; i < ARRAY_LENGTH(tables); i++) {
    names[i] = tables[i].name;
    if (strcmp(tables[i].name, tool->options.subject)) continue;
    ListTable *print = list_form(&tool->options, &tables[i]);
    if (!print) return EXIT_user;
    Text out = text_create(tool->arena);
    print(&out);
    tool_print(&out);
    return EXIT_done;
  }
  const char *nearest =
      text_nearest(tool->options.subject, names, ARRAY_LENGTH(names));
  message_print("dnnc: error: no table '%s'\n", tool->options.subject);
  if (nearest)
    message_print("help: did you mean '%s'?\n", nearest);
  else
    fprintf(stderr, "help: 'dnnc --help' names the tables\n");
  return EXIT_user;
}
