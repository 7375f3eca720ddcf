/*
 * frame.c -- keeps the names of one call of a layer: its locals, the sizes of
 * its dims, and the paths of its parameters and nodes (section 6 of
 * language.md).
 *
 * A frame has few names, so they lie in arrays that are searched from the
 * front; a long body has a map as well. Frames are reused: a recursion that
 * explodes costs steps, not memory.
 */
#include "frontend/elaborate/frame.h"

#include <math.h>
#include <string.h>

enum { FEW_LOCALS = 16 };

Frame *frame_push(Elab *e, const Callable *callable, Name prefix) {
  Frame *frame = e->unused_frames;
  if (frame)
    e->unused_frames = frame->caller;
  else
    frame = ARENA_NEW(e->arena, Frame);
  frame->locals.n = frame->sizes.n = frame->unsized.n = 0;
  frame->caller = e->frame;
  frame->callable = callable;
  frame->net = e->frame ? e->frame->net : NULL;
  frame->net_run = e->frame ? e->frame->net_run : 0;
  frame->is_level = callable && (!callable->is_net || frame->net);
  if (callable && callable->is_net) {
    frame->net = callable;
    frame->net_run = ++e->n_net_runs;
  }
  frame->labels = callable ? callable->labels : NULL;
  frame->prefix = prefix;
  frame->indices = "";
  frame->result = (ExprValue){.kind = EXPR_VALUE_none};
  frame->result_span = SPAN_NONE;
  frame->mask_type = NULL;
  frame->has_states = false;
  e->frame = frame;
  e->depth += frame->is_level;
  return frame;
}

void frame_pop(Elab *e) {
  Frame *frame = e->frame;
  e->frame = frame->caller;
  e->depth -= frame->is_level;
  frame->caller = e->unused_frames;
  e->unused_frames = frame;
}

/* The map still has locals that are gone and those of an earlier call that used
 * this frame, so an index counts only if the name is there. */
Local *frame_local(Frame *frame, Name name) {
  Local *locals = frame->locals.data;
  int n = frame->locals.n;
  for (int i = 0; i < n && i < FEW_LOCALS; i++)
    if (locals[i].name == name) return &locals[i];
  if (n <= FEW_LOCALS) return NULL;
  intptr_t place = (intptr_t)map_get(frame->places, name);
  bool is_there = place > 0 && place < n && locals[place].name == name;
  return is_there ? &locals[place] : NULL;
}

void frame_add(Elab *e, Local local) {
  Frame *frame = e->frame;
  int place = frame->locals.n;
  vec_push(e->arena, &frame->locals, local);
  if (place < FEW_LOCALS) return;
  if (!frame->places) frame->places = map_create(e->arena);
  map_put(frame->places, local.name, (void *)(intptr_t)place);
}

void frame_set(Elab *e, Name name, ExprValue val, Span span) {
  Local *local = frame_local(e->frame, name);
  if (!local) {
    frame_add(e, (Local){.name = name});
    local = &e->frame->locals.data[e->frame->locals.n - 1];
  }
  local->val = val;
  local->span = span;
}

Size *frame_size(Frame *frame, Name name) {
  for (int i = 0; i < frame->sizes.n; i++)
    if (frame->sizes.data[i].name == name) return &frame->sizes.data[i];
  return NULL;
}

void frame_add_size(Elab *e, Size size) {
  vec_push(e->arena, &e->frame->sizes, size);
}

/* An earlier generic has the same name at the caller. */
static bool is_second(const Frame *frame, const Size *size) {
  for (const Size *at = frame->sizes.data; at < size; at++)
    if (at->caller == size->caller) return true;
  return false;
}

static DimNames frame_stands_for(Elab *e, Name dim) {
  VEC(Name) names = {0};
  for (Frame *frame = e->frame; frame; frame = frame->caller) {
    const Size *size = frame_size(frame, dim);
    if (!size || (size->caller && is_second(frame, size))) break;
    if (!size->caller || size->caller == dim) continue;
    dim = size->caller;
    vec_push(e->arena, &names, dim);
  }
  return (DimNames){names.n, names.data};
}

const DimNames *scope_stands_for(Elab *e, const Type *type) {
  DimNames *out = ARENA_ARRAY(e->arena, DimNames, type->rank + 1);
  for (int d = 0; d < type->rank; d++)
    out[d] = frame_stands_for(e, type->dims[d].name);
  return out;
}

/* ---- paths ---- */

Name scope_join(Elab *e, Name prefix, const char *label, const char *indices) {
  /* A deep recursion makes long paths, so their bytes cost steps. */
  e->tree->spent.steps += (int64_t)strlen(prefix) / 16;
  bool is_apart = *prefix && *label && *label != '!';
  const char *dot = is_apart ? "." : "";
  const char *const parts[] = {prefix, dot, label, indices};
  return name_join(e->names, parts, ARRAY_LENGTH(parts));
}

Name scope_path(Elab *e, const void *place, const char *fallback) {
  const Frame *frame = e->frame;
  const char *label = frame->labels ? map_get(frame->labels, place) : NULL;
  return scope_join(e, frame->prefix, label ? label : fallback, frame->indices);
}
