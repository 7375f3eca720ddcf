/*
 * command_show.c -- implements `dnnc show`, which prints a plan file as tables.
 * With a model it shows what the plan leads to (show_collectives.c), and a
 * cluster file is printed by show_cluster.c.
 */
#include "frontend/syntax/ast.h"
#include "tools/commands/tools.h"

#include <stdio.h>
#include <string.h>

static const char *const pin_names[] = {
    [PIN_shard_names] = "shard",
    [PIN_shard_paths] = "shard",
    [PIN_replicate] = "replicate",
    [PIN_stage] = "stage",
    [PIN_cut] = "cut",
    [PIN_remat] = "remat",
    [PIN_keep] = "keep",
    [PIN_offload] = "offload",
    [PIN_place] = "place",
    [PIN_set] = "set",
};

/* The comment after a span on its line, without '#': a prediction. */
static const char *line_comment(Arena *arena, Span span) {
  const char *text = span.source->text;
  uint32_t i = span.end;
  while (i < span.source->n && (text[i] == ' ' || text[i] == ';')) i++;
  if (i >= span.source->n || text[i] != '#') return "";
  i++;
  while (text[i] == ' ') i++;
  uint32_t end = i;
  while (end < span.source->n && text[end] != '\n') end++;
  return arena_printf(arena, "%.*s", (int)(end - i), text + i);
}

static void show_lines(Text *out, const Setting *settings, int n, int depth) {
  for (int i = 0; i < n; i++) {
    const Setting *setting = &settings[i];
    for (int k = 0; k < depth; k++) text_add(out, "  ");
    if (setting->is_block) {
      text_printf(out, "%s%s%s\n", setting->path.names[0],
                  setting->path.n > 1 ? " " : "",
                  setting->path.n > 1 ? setting->path.names[1] : "");
      show_lines(out, setting->settings, setting->n_settings, depth + 1);
      continue;
    }
    const char *comment = line_comment(out->arena, setting->span);
    text_printf(out, "%-16s ", setting->path.names[0]);
    text_printf(out, *comment ? "%-28s %s\n" : "%s%s\n",
                span_text(out->arena, setting->value->span), comment);
  }
}

static void show_settings(Text *out, const Item *item) {
  text_printf(out, "%s%s%s\n", item->block, item->name ? " " : "",
              item->name ? item->name : "");
  show_lines(out, item->settings, item->n_settings, 1);
  text_add(out, "\n");
}

static void show_pins(Text *out, const Item *item) {
  text_printf(out, "plan%s%s\n", item->name ? " " : "",
              item->name ? item->name : "");
  for (int i = 0; i < item->n_pins; i++) {
    const Pin *pin = &item->pins[i];
    const char *text = span_text(out->arena, pin->span);
    size_t word = strlen(pin_names[pin->kind]);
    if (!strncmp(text, pin_names[pin->kind], word) && text[word] == ' ')
      text += word + 1;
    text_printf(out, "  %-10s %-48s %s\n", pin_names[pin->kind], text,
                line_comment(out->arena, pin->span));
  }
}

static void show_json(Text *out, const Ast *ast) {
  text_add(out, "{\"blocks\":[");
  for (int i = 0, n = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    if (item->kind != ITEM_plan && item->kind != ITEM_block) continue;
    text_add(out, n++ ? ",{\"name\":" : "{\"name\":");
    text_add_json(out, item->kind == ITEM_plan ? "plan" : item->block);
    text_add(out, ",\"lines\":[");
    for (int k = 0; k < item->n_pins + item->n_settings; k++) {
      Span span =
          item->kind == ITEM_plan ? item->pins[k].span : item->settings[k].span;
      if (k) text_add(out, ",");
      text_add_json(out, span_text(out->arena, span));
    }
    text_add(out, "]}");
  }
  text_add(out, "]}\n");
}

static int show_map(Tool *tool) {
  TensorMap *map = tool_read_map(tool, tool->options.subject);
  if (!map) return EXIT_user;
  Text out = text_create(tool->arena);
  tensormap_print(&out, map);
  tool_print(&out);
  return EXIT_done;
}

static bool needs(const char *what, const char *help) {
  message_print("dnnc: error: %s\nhelp: %s\n", what, help);
  return false;
}

/* Several options need a model, and those about the price of a step need the
 * machines, too. */
static bool check_show_options(const Options *options) {
  bool is_priced = options->trace || options->html || options->dot ||
                   options->lines >= 0 || options->stage >= 0 ||
                   options->what_if.n > 0 || options->without.n > 0 ||
                   options->profile;
  if (is_priced && !options->cluster)
    return needs("what a step costs depends on the machines",
                 "name them with --cluster FILE");
  if (options->cluster && !options->model)
    return needs("what a step costs follows from a model",
                 "name it with --model MODEL");
  if (options->collectives && !options->model)
    return needs("the collectives of a plan follow from a model",
                 "name it with --model MODEL");
  if ((options->data || options->follow_links) && !options->model)
    return needs("data files are those of a model",
                 "name it with --model MODEL");
  return true;
}

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), k = strlen(end);
  return n > k && strcmp(text + n - k, end) == 0;
}

int command_show(Tool *tool) {
  Options *options = &tool->options;
  bool is_map = ends_with(options->subject, ".map"),
       is_cluster = ends_with(options->subject, ".cluster");
  if (!is_map && !is_cluster) tool_use_certificate(tool, options->subject);
  if (!check_show_options(options)) return EXIT_user;
  if (options->model) {
    options->plan = options->subject;
    options->subject = options->model;
    return options->cluster ? show_step(tool) : show_compiled(tool);
  }
  if (is_map) return show_map(tool);
  if (is_cluster) return show_cluster(tool);
  if (tool->options.ranks > 0) {
    message_print(
        "dnnc: error: 'dnnc show' takes --ranks for a cluster only\n");
    return EXIT_user;
  }
  const Source *source = tool_read_subject(tool);
  if (!source) return EXIT_user;
  Ast *ast =
      ast_parse(tool->arena, tool->module.names, tool->module.diags, source);
  machines_check(tool->arena, tool->module.diags, ast);
  if (tool_report(tool)) return EXIT_user;
  Text out = text_create(tool->arena);
  if (tool->options.json) {
    show_json(&out, ast);
  } else {
    for (int i = 0; i < ast->n_items; i++) {
      const Item *item = &ast->items[i];
      if (item->kind == ITEM_plan)
        show_pins(&out, item);
      else if (item->kind == ITEM_block)
        show_settings(&out, item);
    }
  }
  tool_print(&out);
  return EXIT_done;
}
