/*
 * read.h -- declares how the blocks of a plan and the annotations of a model
 * become Pins.
 */
#ifndef FRONTEND_PLAN_READ_H
#define FRONTEND_PLAN_READ_H

#include "frontend/frontend.h"
#include "frontend/plan/read_paths.h"
#include "ir/plan/pins.h"

typedef struct PinReader {
  Elab *e;
  const Model *model;
  const Graph *graph;
  const Elab *walk; /* the elaboration that made it */
  bool is_file; /* the blocks are those of a plan file, not the model's own */
  PathReader paths;
  VEC(const Item *) blocks;       /* blocks of plans, in order */
  const Certificate *certificate; /* of the plan file; NULL: it has none */
  Pins *pins;
  Map *parameters; /* path -> GraphInput; NULL until a line needs it */
} PinReader;

/* ---- mesh.c ---- */

bool reader_is_word(const Expr *x, const char *word);
/* Reads an integer of at least `least` for the setting `name`.  Returns false
 * after a message. */
bool reader_read_int(PinReader *r, const Expr *x, const char *name,
                     int64_t least, int64_t *out);
/* Reads the block `mesh`; NULL means that there is none. */
void reader_read_mesh(PinReader *r, const Item *mesh);
/* Returns the last line that sets this, because a later one wins.  Returns NULL
 * if none does. */
const Pin *reader_find_set(const PinReader *r, const char *name);
/* Reads the axes of one shard, MAX_AXES at most; `none` is the empty
 * list.  Returns false after a message. */
bool reader_read_axes(PinReader *r, const NameList *names, int *out_n,
                      Name *out);

/* ---- settings.c ---- */

/* Reads a line NAME = VALUE. */
void reader_read_setting(PinReader *r, const Pin *pin);

/* ---- schedule_list.c ---- */

/* Reads the file of a schedule, of which `x` is the path.  Returns NULL after a
 * message. */
const Pipeline *reader_read_list(PinReader *r, const Expr *x);

/* ---- stages.c ---- */

/* Adds the axes that lines `stage` alone name. */
void reader_add_stage_axes(PinReader *r);
/* Reads a line `stage` or `cut after`. */
void reader_read_stage(PinReader *r, const Pin *pin);
/* Reads a path of a stage or place; false after a message. */
bool reader_read_stage_path(PinReader *r, const Expr *x, StagePath *out);
/* Reads `3` or `0..3`; false after a message. */
bool reader_read_stage_ranks(PinReader *r, const Expr *x, PlanStage *out);

/* ---- places.c ---- */

/* Reads a line `place`. */
void reader_read_place(PinReader *r, const Pin *pin);
/* Reports lines `place` beside those of stages. */
void reader_check_places(PinReader *r);

/* ---- read.c ---- */

/* Returns whether the source leaves out the line or annotation at this place.
 */
bool reader_leaves_out(const PlanSource *from, Span line);

/* One line about these paths, which its places must suit; false after a
 * message. */
bool reader_read_line(PinReader *r, const Pin *pin, const PathList *paths,
                      PinAbout about, PlanPin *out);
/* Appends a placement to the pins. */
void reader_add_pin(PinReader *r, const PlanPin *pin);
/* All lines of all blocks. */
void reader_read_lines(PinReader *r);

/* ---- annotated_stages.c ---- */

/* Adds what annotations `@stage` of the model give a stage and no line names,
 * where the plan has stages by number. */
void reader_add_annotated_stages(PinReader *r, const PlanSource *from);

/* ---- annotations.c ---- */

/* Reads the annotations of the model, over which lines of the plan win, but for
 * those that the source leaves out. */
void reader_read_annotations(PinReader *r, const PlanSource *from);
/* Returns whether an annotation says something on one rank too. */
bool reader_annotations_ask(const Elab *walk);

#endif
