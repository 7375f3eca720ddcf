/*
 * maker.h -- declares what the parts of the generator share: the program so
 * far, and the values that a statement may use, with their types.
 */
#ifndef TESTS_RANDOM_MAKER_H
#define TESTS_RANDOM_MAKER_H

#include "tests/random/program.h"

enum { MOST_DIMS = 6, MOST_ELEMENTS = 3000 };

typedef struct Axis {
  const char *name; /* "N" is the batch */
  int size;
} Axis;

typedef struct Made { /* a value with a name */
  const char *name;
  int rank;
  Axis dims[MOST_DIMS + 2];
} Made;
typedef VEC(Made) MadeList;

typedef struct Layer { /* made by the generator; takes one type */
  const char *name;
  Made formal, result;
} Layer;

typedef struct Maker {
  Choices *choices;
  Arena *arena;
  Text *out; /* of the body at hand */
  int indent;
  bool is_in_net; /* not in a layer: `t` is there */
  bool in_repeat; /* `i` is there */
  int n_names, n_dims;
  MadeList *scope;
  VEC(Layer) layers;
  Text layer_text;
  Axis file_dims[4]; /* with a size at file level; the first is N */
} Maker;

#define FORMAT(m, ...) arena_printf((m)->arena, __VA_ARGS__)

/* Statements write whole lines with `line`. */
void line(Maker *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *fresh_name(Maker *m, const char *stem);
/* A new dim of a random (or this) size. */
Axis fresh_dim(Maker *m, int size);
int find_dim(const Made *value, const char *dim); /* or -1 */
void drop_dim(Made *value, int at);
/* False, and nothing changed, if there are too many. */
bool add_dim(Made *value, Axis dim);
bool fits(const Made *value); /* rank and size are within the limits */
/* Mostly something recent. */
Made *pick_value(Maker *m);
/* Index of a dim that is not the batch, or -1. */
int pick_dim(Maker *m, const Made *value);
/* Writes "name = text" for a value of this type. */
void keep(Maker *m, Made type, const char *text);
/* Declares a parameter; its name. */
const char *param(Maker *m, const Made *type);
/* "[N, A, D5:3]" */
const char *type_text(Maker *m, const Made *type);
/* "A" or "(A, D5)" of dims first .. first + n - 1. */
const char *dims_text(Maker *m, const Axis *dims, int n);
/* The value brought to dims of `like` at most: means over the others. */
const char *reduced_to(Maker *m, const Made *value, const Made *like);

/* ---- statements: may decide to write nothing ---- */

/* windows.c */
void make_conv(Maker *m);
void make_conv2(Maker *m);
void make_conv_transpose(Maker *m);
void make_pool(Maker *m);
void make_resize(Maker *m);
/* models.c */
void make_attention(Maker *m);
void make_batchnorm(Maker *m);
void make_lstm(Maker *m);
void make_experts(Maker *m);
void make_rotary(Maker *m);
void make_tied(Maker *m);
void make_state(Maker *m);
void make_embedding(Maker *m);

/* statements.c, blocks.c */

/* A few statements on what is in scope. */
void make_body(Maker *m, int at_most);
/* Is there one more of a list? */
bool goes_on(Maker *m, int done, int at_most);
void make_statement(Maker *m);
void make_block(Maker *m); /* repeat, if */
void make_layer(Maker *m); /* at file level */

#endif
