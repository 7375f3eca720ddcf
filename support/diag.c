/*
 * diag.c -- collects the messages about the user's mistakes and prints them.
 *
 *     mlp.dnn:12:19: error: argument 'x' of 'linear' has no dimension 'H1'
 *        12 |   x = relu(linear[H1 -> H2](x))
 *           |                   ^~
 *     mlp.dnn:5:14: note: 'linear' contracts it as 'I'
 *     help: ...
 *
 * Messages above the limit are counted and dropped.  The caller of a dropped
 * message still gets a Diag to attach notes to, which is never printed.
 */
#include "support/support.h"

#include <string.h>

enum { LONGEST_LINE = 300 };

typedef struct Note {
  Span span;
  const char *text;
} Note;

struct Diag {
  Arena *arena;
  DiagId id;
  Span span;
  const char *text, *help;
  VEC(Note) notes;
};

struct Diags {
  Arena *arena;
  VEC(Diag *) kept;
  int n[N_SEVERITIES], n_printed;
  bool told_limit;
};

static const struct {
  Severity severity;
  const char *format;
} rows[] = {
#define DIAG(name, severity, format) {SEVERITY_##severity, format},
#include "support/diags.def"
};

static const struct {
  const char *word;
  int most;
} severities[] = {[SEVERITY_error] = {"error", 20},
                  [SEVERITY_warning] = {"warning", 100},
                  [SEVERITY_note] = {"note", 100}};

/* ---- collecting ---- */

Diags *diags_create(Arena *arena) {
  Diags *diags = ARENA_NEW(arena, Diags);
  diags->arena = arena;
  return diags;
}

bool diags_have(const Diags *diags, DiagId id, Span span) {
  if (!span.source) return false;
  for (int i = 0; i < diags->kept.n; i++) {
    const Diag *old = diags->kept.data[i];
    if (old->id == id && old->span.source == span.source &&
        old->span.begin == span.begin && old->span.end == span.end)
      return true;
  }
  return false;
}

Diag *diag(Diags *diags, DiagId id, Span span, ...) {
  ASSERT(id < N_DIAGS);
  Diag *added = ARENA_NEW(diags->arena, Diag);
  *added = (Diag){.arena = diags->arena, .id = id, .span = span, .text = ""};
  if (diags_have(diags, id, span)) return added;
  Severity severity = rows[id].severity;
  if (diags->n[severity]++ >= severities[severity].most) return added;
  va_list args;
  va_start(args, span);
  added->text = message_vprintf(diags->arena, rows[id].format, args);
  va_end(args);
  vec_push(diags->arena, &diags->kept, added);
  return added;
}

void diag_note(Diag *diag, Span span, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Note note = {span, message_vprintf(diag->arena, format, args)};
  va_end(args);
  vec_push(diag->arena, &diag->notes, note);
}

void diag_help(Diag *diag, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag->help = message_vprintf(diag->arena, format, args);
  va_end(args);
}

int diags_errors(const Diags *diags) {
  return diags->n[SEVERITY_error];
}

int diags_warnings(const Diags *diags) {
  return diags->n[SEVERITY_warning];
}

/* ---- printing ---- */

static bool has_place(Span span) {
  return span.source && span.begin <= span.end;
}

static void print_head(Text *out, Span span, const char *kind,
                       const char *text) {
  if (has_place(span)) {
    int line, column;
    span_locate(span, &line, &column);
    message_escape(out, span.source->path);
    text_printf(out, ":%d:%d: ", line, column);
  } else if (span.source) {
    message_escape(out, span.source->path);
    text_add(out, ": ");
  }
  text_printf(out, "%s: ", kind);
  message_escape(out, text);
  text_add(out, "\n");
}

static bool is_continuation(char c) {
  return ((unsigned char)c & 0xc0) == 0x80;
}

static bool is_visible(char c) {
  unsigned char u = (unsigned char)c;
  return (u >= 0x20 || c == '\t') && u != 0x7f;
}

static void print_line(Text *out, Span span) {
  const char *text = span.source->text;
  size_t n = span.source->n;
  size_t at = span.begin < n ? span.begin : n;
  size_t begin = at, end = at;
  while (begin > 0 && text[begin - 1] != '\n') begin--;
  while (end < n && text[end] != '\n') end++;
  if (end > at && text[end - 1] == '\r') end--;
  if (at - begin > LONGEST_LINE / 2) begin = at - LONGEST_LINE / 2;
  if (end - begin > LONGEST_LINE) end = begin + LONGEST_LINE;
  while (begin < at && is_continuation(text[begin])) begin++;
  while (end > at && end < n && is_continuation(text[end])) end--;
  int line, column;
  span_locate(span, &line, &column);
  Text source = text_create(out->arena), caret = text_create(out->arena);
  for (size_t i = begin; i < end;) {
    int n_bytes = is_visible(text[i]) ? text_utf8_length(text + i) : 0;
    /* Bytes that are not text must not reach a terminal. */
    if (n_bytes > 0)
      text_add_n(&source, text + i, (size_t)n_bytes);
    else
      text_add(&source, "?");
    if (i < at)
      text_add(&caret, text[i] == '\t' ? "\t" : " ");
    else if (i == at)
      text_add(&caret, "^");
    else if (i < span.end)
      text_add(&caret, "~");
    i += n_bytes > 0 ? (size_t)n_bytes : 1;
  }
  if (at >= end) text_add(&caret, "^"); /* at the end of the line */
  text_printf(out, "%5d | %s\n      | %s\n", line, text_string(&source),
              text_string(&caret));
}

static void print_diag(Text *out, const Diag *diag) {
  if (!diag->span.source) text_add(out, "dnnc: ");
  print_head(out, diag->span, severities[rows[diag->id].severity].word,
             diag->text);
  if (has_place(diag->span)) print_line(out, diag->span);
  for (int i = 0; i < diag->notes.n; i++)
    print_head(out, diag->notes.data[i].span, "note", diag->notes.data[i].text);
  if (!diag->help) return;
  text_add(out, "help: ");
  message_escape(out, diag->help);
  text_add(out, "\n");
}

const char *diags_first_error(const Diags *diags, Arena *arena) {
  for (int i = 0; i < diags->kept.n; i++) {
    const Diag *diag = diags->kept.data[i];
    if (rows[diag->id].severity != SEVERITY_error) continue;
    Text text = text_create(arena);
    message_escape(&text, diag->text);
    return text_string(&text);
  }
  return NULL;
}

void diags_print(Diags *diags, Text *out) {
  for (; diags->n_printed < diags->kept.n; diags->n_printed++) {
    if (diags->n_printed > 0) text_add(out, "\n");
    print_diag(out, diags->kept.data[diags->n_printed]);
  }
  int most = severities[SEVERITY_error].most;
  if (diags_errors(diags) < most || diags->told_limit) return;
  text_printf(out, "\nnote: checking stopped after %d errors\n", most);
  diags->told_limit = true;
}
