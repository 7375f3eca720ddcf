/*
 * experts.c -- interprets topk and the moves between tokens and experts by the
 * plain algorithm, with one counter for each expert.
 */
#include "interp/internal.h"

/* ---- routed tokens and slots ---- */

/* The dims of `type` that the attribute does not list. */
static Loops loops_of_others(const InterpCall *call, AttrKey key,
                             const Type *type) {
  Loops loops = {0};
  int n;
  const Name *names = node_names(call->node, key, &n);
  loops_add_type(&loops, type_without(call->arena, type, names, n));
  return loops;
}

void interp_route(const InterpCall *call) {
  const Tensor *choice = &call->inputs[0], *slot = &call->results[0];
  int n;
  const int64_t *sizes = node_ints(call->node, ATTR_sizes, &n);
  int64_t *used = ARENA_ARRAY(call->arena, int64_t, sizes[0]);
  Loops groups = loops_of_others(call, ATTR_over, choice->type);
  loops_bind(&groups, choice->type);
  for (bool more = loops_start(&groups); more; more = loops_next(&groups)) {
    Loops tokens = loops_of_attr(call->node, ATTR_over, choice->type);
    for (int64_t e = 0; e < sizes[0]; e++) used[e] = 0;
    for (bool next = loops_start(&tokens); next; next = loops_next(&tokens)) {
      int64_t at = groups.offset[0] + tokens.offset[0];
      int64_t e = (int64_t)choice->data[at];
      bool fits = e >= 0 && e < sizes[0] && used[e] < sizes[1];
      slot->data[at] = fits ? (double)(e * sizes[1] + used[e]++) : -1;
    }
  }
}

void interp_route_inverse(const InterpCall *call) {
  const Tensor *slot = &call->inputs[0], *token = &call->results[0];
  int64_t n_tokens = type_elements(token->type);
  for (int64_t i = 0; i < n_tokens; i++) token->data[i] = -1;
  Loops slots = loops_of_attr(call->node, ATTR_to, token->type);
  int64_t *offset = loops_offsets(&slots, 0, call->arena);
  double n_slots = (double)loops_count(&slots);
  Loops groups = loops_of_others(call, ATTR_over, slot->type);
  loops_bind(&groups, slot->type);
  loops_bind(&groups, token->type);
  for (bool more = loops_start(&groups); more; more = loops_next(&groups)) {
    Loops tokens = loops_of_attr(call->node, ATTR_over, slot->type);
    double number = 0;
    for (bool next = loops_start(&tokens); next; next = loops_next(&tokens)) {
      double s = slot->data[groups.offset[0] + tokens.offset[0]];
      if (s >= 0 && s < n_slots)
        token->data[groups.offset[1] + offset[(int64_t)s]] = number;
      number++;
    }
  }
}
