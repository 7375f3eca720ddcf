/*
 * elab.c -- creates the elaboration of one graph and charges its cost to the
 * budget of the program.
 *
 * When the budget of nodes, list elements or steps runs out, the program is
 * over: every value is poison from then on, so that the walk ends by itself.
 */
#include "frontend/elaborate/elaborate.h"

enum { MOST_ERRORS = 20 };

Elab *elab_create(SourceTree *tree, Name graph_name) {
  Module *m = tree->module;
  Elab *e = ARENA_NEW(m->arena, Elab);
  *e = (Elab){.tree = tree,
              .module = m,
              .arena = m->arena,
              .names = m->names,
              .diags = m->diags,
              .graph = graph_create(m, graph_name),
              .epoch = ++tree->n_epochs,
              .params = map_create(m->arena),
              .written_states = map_create(m->arena),
              .data = map_create(m->arena),
              .limits = map_create(m->arena),
              .step = VALUE_NONE,
              .seed = VALUE_NONE};
  return e;
}

/* ---- budget ---- */

void elab_exhausted(Elab *e, Span span, const char *what, int64_t limit) {
  if (!e->tree->is_over)
    diag(e->diags, DIAG_limit_exceeded, span, (long long)limit, what);
  e->tree->is_over = true;
}

bool elab_step(Elab *e, Span span) {
  SourceTree *p = e->tree;
  if (p->is_over) return false;
  if (++p->spent.steps > p->budget.steps)
    elab_exhausted(e, span, "steps", p->budget.steps);
  else if (p->spent.list_elements > p->budget.list_elements)
    elab_exhausted(e, span, "list elements", p->budget.list_elements);
  else if (diags_errors(e->diags) >= MOST_ERRORS)
    p->is_over = true;
  return !p->is_over;
}

bool elab_may_list(Elab *e, int64_t n, Span span) {
  SourceTree *p = e->tree;
  int64_t most = p->budget.list_elements;
  if (n > most - p->spent.list_elements)
    elab_exhausted(e, span, "list elements", most);
  return !p->is_over;
}

void elab_not_supported(Elab *e, Span span, const char *what) {
  diag(e->diags, DIAG_not_supported, span, what);
}
