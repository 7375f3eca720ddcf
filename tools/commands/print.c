/*
 * print.c -- prints the results of all commands to standard output and their
 * messages to standard error.
 */
#include "frontend/syntax/ast.h"
#include "tools/commands/tools.h"

#include <stdio.h>
#include <string.h>

bool tool_report(Tool *tool) {
  Diags *diags = tool->module.diags;
  Text text = text_create(tool->arena);
  bool has_errors = diags_errors(diags) > 0;
  diags_print(diags, &text);
  if (has_errors || !tool->hides_warnings) fputs(text_string(&text), stderr);
  return has_errors;
}

int tool_fail(Status status) {
  message_print("dnnc: error: %s\n", status.message);
  return status.code == STATUS_invalid ? EXIT_user : EXIT_machine;
}

/* The one mutable object of this file; it says what dnnc.c asserts. */
static bool has_printed;

bool tool_has_printed(void) {
  return has_printed;
}

void tool_print(Text *text) {
  has_printed = true;
  fwrite(text_string(text), 1, text->n, stdout);
}

bool tool_read_bytes(Tool *tool, const char *option, const char *text,
                     int64_t *out) {
  Source *source = ARENA_NEW(tool->arena, Source);
  *source = (Source){option, text, strlen(text)};
  Expr *expr = ast_parse_expr(tool->arena, tool->module.names,
                              tool->module.diags, source);
  if (!expr) return !tool_report(tool);
  double value = expr->kind == EXPR_int     ? (double)expr->integer
                 : expr->kind == EXPR_float ? expr->real
                                            : -1;
  if (value < 1) {
    message_print("dnnc: error: %s takes a size as in 25MB\n", option);
    return false;
  }
  *out = (int64_t)value;
  return true;
}

const Source *tool_read_subject(Tool *tool) {
  Source *source = ARENA_NEW(tool->arena, Source);
  source->path = tool->options.subject;
  Status status =
      file_read(tool->arena, source->path, 16 << 20, &source->text, &source->n);
  if (status.code == STATUS_ok) return source;
  tool_fail(status);
  return NULL;
}
