/*
 * certificate.c -- reads from the certificate of a plan which model and which
 * cluster the plan was made for.
 *
 *     certificate {
 *       model   = "gpt2.dnn"
 *       cluster = "h100x256.cluster"
 *     }
 */
#include "frontend/syntax/ast.h"
#include "tools/commands/tools.h"

#include <string.h>

const Ast *tool_parse_plan(Tool *tool, const char *path,
                           const Source **out_source) {
  enum { MOST_PLAN_BYTES = 16 << 20 };
  Source *source = ARENA_NEW(tool->arena, Source);
  source->path = path;
  Status status =
      file_read(tool->arena, path, MOST_PLAN_BYTES, &source->text, &source->n);
  if (status.code != STATUS_ok) return NULL;
  *out_source = source;
  return ast_parse(tool->arena, tool->module.names, diags_create(tool->arena),
                   source);
}

static const Setting *find_setting(const Ast *ast, const char *name) {
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    if (item->kind != ITEM_block || strcmp(item->block, "certificate") != 0)
      continue;
    for (int k = 0; k < item->n_settings; k++)
      if (strcmp(item->settings[k].path.names[0], name) == 0)
        return &item->settings[k];
  }
  return NULL;
}

/* NULL: none is named, or it is not there. */
static const char *certified_file(Tool *tool, const Ast *ast, const char *plan,
                                  const char *name) {
  const Setting *setting = find_setting(ast, name);
  if (!setting || !setting->value || setting->value->kind != EXPR_string)
    return NULL;
  const char *file = setting->value->name, *slash = strrchr(plan, '/');
  if (file[0] != '/' && slash)
    file =
        arena_printf(tool->arena, "%.*s/%s", (int)(slash - plan), plan, file);
  if (file_exists(file)) return file;
  message_print("dnnc: note: the certificate of '%s' names a %s that is not "
                "there, '%s'\nhelp: name it with --%s FILE\n",
                plan, name, file, name);
  return NULL;
}

void tool_use_certificate(Tool *tool, const char *plan) {
  Options *options = &tool->options;
  const Source *source;
  const Ast *ast = tool_parse_plan(tool, plan, &source);
  if (!ast) return; /* whoever reads the plan says why */
  if (!options->model)
    options->model = certified_file(tool, ast, plan, "model");
  if (options->model && !options->cluster)
    options->cluster = certified_file(tool, ast, plan, "cluster");
}
