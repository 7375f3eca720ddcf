/*
 * certificate.c -- reads from the certificate of a plan which model and which
 * cluster the plan was made for, with the changes of the command line.
 *
 *     certificate {
 *       model   = "gpt2.dnn"
 *       cluster = "h100x256.cluster"
 *     }
 */
#include "frontend/plan/machines.h"
#include "frontend/syntax/ast.h"
#include "tools/commands/tools.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

const Ast *tool_parse_plan(Tool *tool, const char *path,
                           const Source **out_source) {
  enum { MOST_PLAN_BYTES = 16 << 20 };
  const Source *found = tool->found_plan;
  Source *source = ARENA_NEW(tool->arena, Source);
  source->path = path;
  bool is_found = found && strcmp(path, found->path) == 0;
  if (is_found) *source = *found;
  if (!is_found &&
      file_read(tool->arena, path, MOST_PLAN_BYTES, &source->text, &source->n)
              .code != STATUS_ok)
    return NULL;
  *out_source = source;
  return ast_parse(tool->arena, tool->module.names, diags_create(tool->arena),
                   source);
}

/* NULL: none is named, or it is not there. */
static const char *certified_file(Tool *tool, const Certificate *certificate,
                                  const char *plan, CertificateField field) {
  const char *file = certificate->values[field].text;
  const char *slash = strrchr(plan, '/'), *name = certificate_field_name(field);
  if (!file) return NULL;
  if (file[0] != '/' && slash)
    file =
        arena_printf(tool->arena, "%.*s/%s", (int)(slash - plan), plan, file);
  if (file_exists(file)) return file;
  message_print("dnnc: note: the certificate of '%s' names a %s that is not "
                "there, '%s'\nhelp: name it with --%s FILE\n",
                plan, name, file, name);
  return NULL;
}

/* The next word, or NULL.  `rest` is what follows. */
static char *next_word(char **rest) {
  return strtok_r(NULL, " ", rest);
}

/* Sizes of the command line go before all of them. */
static void use_sizes(Tool *tool, const char *sizes) {
  Options *options = &tool->options;
  if (!sizes || options->overrides.n > 0) return;
  char *rest = arena_strdup(tool->arena, sizes), *word, *equals;
  while ((word = next_word(&rest))) {
    if (!(equals = strchr(word, '='))) continue;
    *equals = '\0';
    vec_push(tool->arena, &options->overrides, ((Override){word, equals + 1}));
  }
}

void tool_use_what_if(Tool *tool, const char *changes) {
  Options *options = &tool->options;
  if (!changes || options->what_if.n > 0) return;
  char *rest = arena_strdup(tool->arena, changes), *word;
  while ((word = next_word(&rest)))
    vec_push(tool->arena, &options->what_if, word);
}

const char *tool_path_from(Tool *tool, const char *folder, const char *file) {
  char from[PATH_MAX], to[PATH_MAX];
  if (file[0] == '/' || !realpath(folder, from) || !realpath(file, to))
    return file;
  size_t same = 0; /* bytes of the folders that both are in */
  for (size_t i = 0; from[i] == to[i] || (!from[i] && to[i] == '/'); i++) {
    if (to[i] == '/') same = i;
    if (!from[i]) break;
  }
  Text out = text_create(tool->arena);
  for (const char *at = from + same; *at; at++)
    if (at[0] == '/' && at[1]) text_add(&out, "../");
  text_add(&out, to + same + 1);
  return text_string(&out);
}

void tool_use_certificate(Tool *tool, const char *plan) {
  Options *options = &tool->options;
  const Source *source;
  const Ast *ast = tool_parse_plan(tool, plan, &source);
  /* Whoever reads the plan says why there is none. */
  const Certificate *certificate =
      ast ? certificate_read(tool->arena, ast) : NULL;
  if (!certificate) return;
  const CertificateValue *values = certificate->values;
  if (!options->model) {
    options->model = certified_file(tool, certificate, plan, CERTIFICATE_model);
    if (options->model) use_sizes(tool, values[CERTIFICATE_sizes].text);
  }
  if (options->model && !options->cluster) {
    options->cluster =
        certified_file(tool, certificate, plan, CERTIFICATE_cluster);
    if (options->cluster)
      tool_use_what_if(tool, values[CERTIFICATE_what_if].text);
  }
}
