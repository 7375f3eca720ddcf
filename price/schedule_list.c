/*
 * schedule_list.c -- reads a list of pipeline actions and finds what each of
 * them needs:
 *
 *     F of stage s                F of stage s - 1
 *     B or I of stage s           F of stage s, and B or I of stage s + 1
 *     W of stage s                I of stage s
 *
 * all of the same micro-batch.  What another rank makes arrives by a message,
 * a transfer that takes no time.
 */
#include "price/schedule_list.h"

#include <ctype.h>
#include <string.h>

#define MAX_STAGE 9999
#define MAX_RANKS 4096

/* Stage, kind and micro-batch; an action has one, or several parts. */
typedef struct Part {
  int stage, microbatch, action, order; /* order: among those of its rank */
  char kind;
  Span span;
} Part;

typedef struct Reader {
  Arena *arena;
  Names *names;
  Diags *diags;
  const Source *source;
  const ScheduleTimes *times;
  ScheduleList *list;
  VEC(ScheduleAction) actions;
  VEC(Part) parts;
  Map *by_name; /* "2F7" -> its index in parts, plus 1 */
  VEC(SimTransfer) transfers;
  VEC(int) senders; /* of the transfers */
  bool is_wrong;
} Reader;

/* ---- cells ---- */

static void cell_is_wrong(Reader *r, Span span, const char *fact) {
  enum { MOST_SHOWN = 40 };
  uint32_t n = span.end - span.begin;
  bool is_long = n > MOST_SHOWN;
  diag(r->diags, DIAG_schedule_cell, span,
       arena_printf(r->arena, "%.*s%s", (int)(is_long ? MOST_SHOWN : n),
                    r->source->text + span.begin, is_long ? "..." : ""),
       fact);
  r->is_wrong = true;
}

static bool read_number(const char **at, const char *end, int *out) {
  int value = 0;
  const char *begin = *at;
  while (*at < end && isdigit((unsigned char)**at) && value <= MAX_STAGE)
    value = value * 10 + (*(*at)++ - '0');
  *out = value;
  return *at > begin && value <= MAX_STAGE;
}

static const char *part_name(Reader *r, int stage, char kind, int microbatch) {
  return name_intern(r->names,
                     arena_printf(r->arena, "%d%c%d", stage, kind, microbatch));
}

static int find_part(Reader *r, int stage, char kind, int microbatch) {
  return (int)(intptr_t)map_get(r->by_name,
                                part_name(r, stage, kind, microbatch)) -
         1;
}

/* "2SEND_F7", "3UNSHARD": moves data and takes no time here. */
static bool is_movement(const char *at, const char *end) {
  static const char *const kinds[] = {"SEND_F",     "SEND_B",  "RECV_F",
                                      "RECV_B",     "UNSHARD", "RESHARD",
                                      "REDUCE_GRAD"};
  int number;
  if (!read_number(&at, end, &number)) return false;
  for (int i = 0; i < ARRAY_LENGTH(kinds); i++) {
    size_t n = strlen(kinds[i]);
    if ((size_t)(end - at) < n || memcmp(at, kinds[i], n) != 0) continue;
    const char *rest = at + n;
    return rest == end || (read_number(&rest, end, &number) && rest == end);
  }
  return false;
}

static Ps duration_of(const ScheduleTimes *times, char kind) {
  switch (kind) {
  case 'F': return times->forward;
  case 'I': return times->input_grad;
  case 'W': return times->weight_grad;
  default: return times->input_grad + times->weight_grad;
  }
}

static Span span_of(const Reader *r, const char *at, const char *end) {
  return (Span){r->source, (uint32_t)(at - r->source->text),
                (uint32_t)(end - r->source->text)};
}

/* One "2F7", a part of the action that is the last. */
static void read_part(Reader *r, const char *at, const char *end) {
  Span span = span_of(r, at, end);
  Part part = {.action = r->actions.n - 1, .order = r->parts.n, .span = span};
  if (!read_number(&at, end, &part.stage) || at == end ||
      !strchr("FBIW", part.kind = *at++) ||
      !read_number(&at, end, &part.microbatch) || at != end) {
    cell_is_wrong(r, span,
                  "it is not a stage, F, B, I or W, and a micro-batch");
    return;
  }
  const char *name = part_name(r, part.stage, part.kind, part.microbatch);
  int first = find_part(r, part.stage, part.kind, part.microbatch);
  if (first >= 0) {
    cell_is_wrong(r, span, "it is there twice");
    return;
  }
  vec_push(r->arena, &r->parts, part);
  map_put(r->by_name, name, (void *)(intptr_t)r->parts.n);
  r->actions.data[part.action].duration += duration_of(r->times, part.kind);
  if (part.stage >= r->list->n_stages) r->list->n_stages = part.stage + 1;
  if (part.microbatch >= r->list->n_microbatches)
    r->list->n_microbatches = part.microbatch + 1;
}

/* "(0F7;7B3)OVERLAP_F_B" */
static void read_parts(Reader *r, const char *at, const char *end) {
  static const char suffix[] = ")OVERLAP_F_B";
  size_t n = sizeof suffix - 1;
  if ((size_t)(end - at) <= n || memcmp(end - n, suffix, n) != 0) {
    cell_is_wrong(r, span_of(r, at, end), "it does not end in )OVERLAP_F_B");
    return;
  }
  end -= n;
  for (at++; at <= end; at++) {
    const char *part = at;
    while (at < end && *at != ';') at++;
    read_part(r, part, at);
  }
}

static void read_cell(Reader *r, int rank, const char *at, const char *end) {
  while (at < end && isspace((unsigned char)*at)) at++;
  while (end > at && isspace((unsigned char)end[-1])) end--;
  if (at == end || is_movement(at, end)) return;
  vec_push(r->arena, &r->actions,
           (ScheduleAction){.rank = rank, .span = span_of(r, at, end)});
  if (*at == '(')
    read_parts(r, at, end);
  else
    read_part(r, at, end);
}

static void read_cells(Reader *r) {
  const char *at = r->source->text, *end = at + r->source->n;
  int rank = 0;
  while (at < end) {
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    if (!line_end) line_end = end;
    if (rank >= MAX_RANKS) {
      cell_is_wrong(r, span_of(r, at, line_end), "there are too many ranks");
      return;
    }
    for (const char *cell = at; cell <= line_end; cell++) {
      const char *begin = cell;
      while (cell < line_end && *cell != ',') cell++;
      read_cell(r, rank, begin, cell);
    }
    rank++;
    at = line_end + 1;
  }
  r->list->n_ranks = rank;
}

/* ---- what actions need ---- */

typedef struct Needs {
  int n;
  int parts[2]; /* indices, or -1: nothing makes it */
  const char *names[2];
} Needs;

static void add_need(Reader *r, Needs *needs, int stage, char kind,
                     int microbatch) {
  int found = find_part(r, stage, kind, microbatch);
  if (found < 0 && kind == 'B') found = find_part(r, stage, 'I', microbatch);
  needs->names[needs->n] = part_name(r, stage, kind, microbatch);
  needs->parts[needs->n++] = found;
}

static Needs needs_of(Reader *r, const Part *part) {
  Needs needs = {0};
  int s = part->stage, m = part->microbatch;
  if (part->kind == 'F' && s > 0) add_need(r, &needs, s - 1, 'F', m);
  if (part->kind == 'B' || part->kind == 'I') {
    add_need(r, &needs, s, 'F', m);
    if (s + 1 < r->list->n_stages) add_need(r, &needs, s + 1, 'B', m);
  }
  if (part->kind == 'W') add_need(r, &needs, s, 'I', m);
  return needs;
}

typedef VEC(SimAction) SimActions;

/* A message from the part that makes something to the one that needs it. */
static void add_message(Reader *r, const Part *from, SimActions *after,
                        SimActions *before) {
  int id = r->transfers.n;
  vec_push(r->arena, &r->transfers, (SimTransfer){.n_starts = 1});
  vec_push(r->arena, &r->senders, from->action);
  vec_push(r->arena, &after[from->action],
           (SimAction){.kind = SIM_start, .transfer = id});
  vec_push(r->arena, before, (SimAction){.kind = SIM_wait, .transfer = id});
}

static void add_needs(Reader *r, const Part *part, SimActions *after,
                      SimActions *before) {
  Needs needs = needs_of(r, part);
  for (int i = 0; i < needs.n; i++) {
    const Part *from =
        needs.parts[i] >= 0 ? &r->parts.data[needs.parts[i]] : NULL;
    if (!from) {
      cell_is_wrong(r, part->span,
                    arena_printf(r->arena, "no rank runs %s, which it needs",
                                 needs.names[i]));
    } else if (r->actions.data[from->action].rank !=
               r->actions.data[part->action].rank) {
      add_message(r, from, after, &before[part->action]);
    } else if (from->order >= part->order) {
      cell_is_wrong(r, part->span,
                    arena_printf(r->arena, "it runs before %s, which it needs",
                                 needs.names[i]));
    }
  }
}

static void make_program(Reader *r) {
  ScheduleList *list = r->list;
  int n = r->actions.n;
  SimActions *before = ARENA_ARRAY(r->arena, SimActions, n),
             *after = ARENA_ARRAY(r->arena, SimActions, n),
             *of_rank = ARENA_ARRAY(r->arena, SimActions, list->n_ranks);
  for (int i = 0; i < r->parts.n; i++)
    add_needs(r, &r->parts.data[i], after, before);
  for (int i = 0; i < n; i++) {
    const ScheduleAction *action = &r->actions.data[i];
    SimActions *to = &of_rank[action->rank];
    for (int k = 0; k < before[i].n; k++)
      vec_push(r->arena, to, before[i].data[k]);
    vec_push(
        r->arena, to,
        (SimAction){.kind = SIM_run, .duration = action->duration, .id = i});
    for (int k = 0; k < after[i].n; k++)
      vec_push(r->arena, to, after[i].data[k]);
    list->work[action->rank] += action->duration;
  }
  SimClass *classes = ARENA_ARRAY(r->arena, SimClass, list->n_ranks);
  for (int c = 0; c < list->n_ranks; c++)
    classes[c] = (SimClass){of_rank[c].n, 1, of_rank[c].data};
  list->program = (SimProgram){.n_classes = list->n_ranks,
                               .n_transfers = r->transfers.n,
                               .n_terms = 1,
                               .classes = classes,
                               .transfers = r->transfers.data};
}

static void count_live(Reader *r) {
  int *live = ARENA_ARRAY(r->arena, int, r->list->n_ranks);
  for (int i = 0; i < r->parts.n; i++) {
    const Part *part = &r->parts.data[i];
    int rank = r->actions.data[part->action].rank;
    if (part->kind == 'F' && ++live[rank] > r->list->peak_live[rank])
      r->list->peak_live[rank] = live[rank];
    if (part->kind == 'B' || part->kind == 'W') live[rank]--;
  }
}

ScheduleList *schedule_list_read(Arena *arena, Names *names, Diags *diags,
                                 const Source *source,
                                 const ScheduleTimes *times) {
  Reader r = {.arena = arena,
              .names = names,
              .diags = diags,
              .source = source,
              .times = times,
              .list = ARENA_NEW(arena, ScheduleList),
              .by_name = map_create(arena)};
  read_cells(&r);
  if (r.is_wrong) return NULL;
  if (r.parts.n == 0) {
    diag(diags, DIAG_schedule_empty, SPAN_FILE(source));
    return NULL;
  }
  r.list->work = ARENA_ARRAY(arena, Ps, r.list->n_ranks);
  r.list->peak_live = ARENA_ARRAY(arena, int, r.list->n_ranks);
  r.list->n_actions = r.actions.n;
  r.list->actions = r.actions.data;
  make_program(&r);
  r.list->senders = r.senders.data;
  count_live(&r);
  return r.is_wrong ? NULL : r.list;
}
