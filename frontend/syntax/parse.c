/*
 * parse.c -- runs the grammar on a source: a file gives its items, a value of
 * the command line one expression.
 */
#include "frontend/syntax/syntax.h"

enum { MOST_BYTES = 1 << 28 };

static Parser *parse_source(Arena *arena, Names *names, Diags *diags,
                            const Source *source, bool expr_only) {
  Parser *parser = ARENA_NEW(arena, Parser);
  *parser = (Parser){.arena = arena,
                     .names = names,
                     .diags = diags,
                     .source = source,
                     .expr_only = expr_only,
                     .line_start = true};
  if (source->n > MOST_BYTES) {
    diag(diags, DIAG_source_too_large, SPAN_FILE(source), source->n,
         (size_t)MOST_BYTES);
    return parser;
  }
  lexer_begin(parser);
  syntax_parse(parser); /* what it says is in the diags already */
  return parser;
}

Ast *ast_parse(Arena *arena, Names *names, Diags *diags, const Source *source) {
  Parser *parser = parse_source(arena, names, diags, source, false);
  Ast *ast = ARENA_NEW(arena, Ast);
  *ast = (Ast){source, parser->items.data, parser->items.n};
  return ast;
}

Expr *ast_parse_expr(Arena *arena, Names *names, Diags *diags,
                     const Source *source) {
  int before = diags_errors(diags);
  Parser *parser = parse_source(arena, names, diags, source, true);
  return diags_errors(diags) == before ? parser->expr : NULL;
}
