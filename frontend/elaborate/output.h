/*
 * output.h -- declares the outputs of a graph besides its loss: terms of
 * metrics, or a value to predict.
 */
#ifndef FRONTEND_ELABORATE_OUTPUT_H
#define FRONTEND_ELABORATE_OUTPUT_H

#include "frontend/elaborate/elaborate.h"
#include "ir/model/model.h"

/* ---- terms.c: metrics as terms that an evaluation adds up ---- */

/* Returns sum / count, which an evaluation adds up and divides once. */
ExprValue elab_ratio(Elab *e, ExprValue value, ExprValue sum, ExprValue count);
/* Makes the terms of a scalar outputs of the graph. */
void elab_terms(Elab *e, Name name, ExprValue val, bool is_loss, Metric *out);

/* ---- predict.c: the value that `dnnc predict` writes ---- */

/* Records results of calls and assigned values by path from now on: those of
 * one net, or of all (NULL). */
void predict_watch(Elab *e, const Callable *net);
void predict_note_call(Elab *e, Name path, ExprValue val);
void predict_note_value(Elab *e, Name path, ExprValue val);
typedef struct PredictChoice {
  const Callable *net; /* the net whose result it is */
  const char *value;   /* the net's result, or the value of this path; NULL */
  Name batch_dim;      /* dim of the batch, or NULL */
  bool says;           /* mistakes are reported */
} PredictChoice;
/* Returns the graph that gives it, batch dim first, with the data inputs that
 * it needs alone.  Returns NULL where there is none. */
Graph *predict_graph(Elab *e, const PredictChoice *choice);

#endif
