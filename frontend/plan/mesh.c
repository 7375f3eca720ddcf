/*
 * mesh.c -- reads the block `mesh`, and the mesh axes that lines of a plan
 * name.
 *
 *     mesh { data = auto; tensor = 2 }     PinAxis data 0, tensor 2
 *     over (data, tensor)                  the names of both, outermost first
 */
#include "frontend/elaborate/eval.h"
#include "frontend/plan/read.h"
#include "frontend/syntax/help.h"

#include <string.h>

bool reader_is_word(const Expr *x, const char *word) {
  return x->kind == EXPR_name && strcmp(x->name, word) == 0;
}

bool reader_read_int(PinReader *r, const Expr *x, const char *name,
                     int64_t least, int64_t *out) {
  ExprValue val = eval(r->e, x), whole = expr_value_whole(val);
  if (whole.kind == EXPR_VALUE_int && whole.integer >= least) {
    *out = whole.integer;
    return true;
  }
  if (!expr_value_is_poison(val))
    diag(r->e->diags, DIAG_wrong_setting, x->span, name,
         arena_printf(r->e->arena, "an integer of at least %lld",
                      (long long)least),
         expr_value_describe(r->e, val));
  return false;
}

/* ---- the mesh ---- */

static void read_axis(PinReader *r, const Setting *setting) {
  Name name = setting->path.names[0];
  Span span = setting->path.spans[0];
  PinAxis axis = {.name = name, .span = span};
  if (setting->is_block || setting->type || !setting->value) {
    diag(r->e->diags, DIAG_mesh_axis, span);
    return;
  }
  if (strcmp(name, "none") == 0) { /* `over none` is no axis */
    diag(r->e->diags, DIAG_predefined, span, name);
    return;
  }
  const PinAxis *old = pins_find_axis(r->pins, name);
  if (old) {
    Diag *d = diag(r->e->diags, DIAG_given_twice, span, name);
    diag_note(d, old->span, "it is given here first");
    return;
  }
  bool is_auto = reader_is_word(setting->value, "auto");
  if (!is_auto && !reader_read_int(r, setting->value, name, 1, &axis.size))
    return;
  if (r->pins->axes.n == MAX_AXES - 1)
    diag(r->e->diags, DIAG_mesh_axes, span, MAX_AXES - 1);
  else
    vec_push(r->e->arena, &r->pins->axes, axis);
}

void reader_read_mesh(PinReader *r, const Item *mesh) {
  if (!mesh) {
    PinAxis data = {.name = name_intern(r->e->names, "data")};
    vec_push(r->e->arena, &r->pins->axes, data);
    return;
  }
  r->pins->mesh_span = mesh->name_span;
  for (int i = 0; i < mesh->n_settings; i++) read_axis(r, &mesh->settings[i]);
}

const Pin *reader_find_set(const PinReader *r, const char *name) {
  for (int b = r->blocks.n - 1; b >= 0; b--) {
    const Item *item = r->blocks.data[b];
    for (int i = item->n_pins - 1; i >= 0; i--)
      if (item->pins[i].kind == PIN_set &&
          strcmp(item->pins[i].name, name) == 0)
        return &item->pins[i];
  }
  return NULL;
}

bool reader_read_axes(PinReader *r, const NameList *names, int *out_n,
                      Name *out) {
  Pins *pins = r->pins;
  *out_n = 0;
  if (names->n == 1 && strcmp(names->names[0], "none") == 0) return true;
  for (int i = 0; i < names->n; i++) {
    Name name = names->names[i];
    if (!pins_find_axis(pins, name)) {
      Diag *d = diag(r->e->diags, DIAG_unknown_axis, names->spans[i], name);
      const char *known[MAX_AXES];
      for (int k = 0; k < pins->axes.n; k++) known[k] = pins->axes.data[k].name;
      if (pins->mesh_span.source)
        diag_note(d, pins->mesh_span, "the mesh is here");
      diag_choices(r->e->arena, d, name, known, pins->axes.n);
      return false;
    }
    if (axis_is_pipe(name)) {
      diag(r->e->diags, DIAG_axis_pipe, names->spans[i]);
      return false;
    }
    for (int k = 0; k < i; k++)
      if (names->names[k] == name) {
        diag(r->e->diags, DIAG_axis_twice, names->spans[i], name);
        return false;
      }
    if (!pins->mesh_span.source && !pins->data_span.source)
      pins->data_span = names->spans[i];
    out[(*out_n)++] = name;
  }
  return true;
}
