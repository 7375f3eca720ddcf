/*
 * blocks.h -- declares the readers of a model's blocks (data, train, precision,
 * sample) and of the overrides of the command line.
 */
#ifndef FRONTEND_BLOCKS_BLOCKS_H
#define FRONTEND_BLOCKS_BLOCKS_H

#include "frontend/elaborate/elaborate.h"
#include "ir/model/model.h"

/* Returns the first dim of the first data field that an expression
 * reads.  Returns NULL if it reads none. */
Name data_batch_dim(const SourceTree *tree, const Expr *loss);
/* Reads the blocks of which `read` has read a field. */
void data_read(Elab *e, Model *model, const Elab *read);
/* Puts the fields of all data blocks into the program. */
void data_register(SourceTree *tree);
struct BuiltinCall;
/* Takes the arguments of a call of `images` into a field. */
bool images_take(Elab *e, struct BuiltinCall *call, DataField *out);
void train_read(Elab *e, Model *model, const Item *block);
/* Returns whether some optimizer or schedule has an argument of this name. */
bool train_takes_argument(Names *names, const char *name);
void precision_read(Elab *e, Model *model, const Item *block);
/* Warns about what `f32` lists and no graph of the model has. */
void precision_check(Elab *e, const Model *model);
void sample_read(Elab *e, Model *model, const Item *block);

/* ---- override.c ---- */

/* Sorts the overrides into globals and settings. */
void override_apply(SourceTree *tree);

/* ---- metrics.c ---- */

/* Makes the loss an output of the graph; false after a message.  `out` (or
 * NULL): how an evaluation computes it. */
bool elab_loss(Elab *e, const Expr *loss, Metric *out);
/* Elaborates the metrics of the train block, which `settings` reads. */
void elab_metrics(Elab *e, Elab *settings, const Item *train_block,
                  TrainSettings *out);

#endif
