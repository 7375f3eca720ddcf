/*
 * output.h -- declares the outputs of a graph besides its loss: terms of
 * metrics, or a value to predict.
 */
#ifndef FRONTEND_ELABORATE_OUTPUT_H
#define FRONTEND_ELABORATE_OUTPUT_H

#include "frontend/elaborate/elaborate.h"
#include "ir/model.h"

/* ---- terms.c ---- */

/* sum / count, which an evaluation adds up and divides once. */
ExprValue elab_ratio(Elab *e, ExprValue value, ExprValue sum, ExprValue count);
/* The terms of a scalar, which are outputs of the graph from now on. */
void elab_terms(Elab *e, Name name, ExprValue val, bool is_loss, Metric *out);

/* ---- predict.c ---- */

/* From now on, results of calls and assigned values are recorded by path: those
 * of one net, or of all (NULL). */
void predict_watch(Elab *e, const Callable *net);
void predict_note_call(Elab *e, Name path, ExprValue val);
void predict_note_value(Elab *e, Name path, ExprValue val);
typedef struct PredictChoice {
  const Callable *net; /* whose result it is */
  const char *value;   /* or the value of this path; NULL */
  Name batch_dim;      /* or NULL */
  bool says;           /* mistakes are reported */
} PredictChoice;
/* The graph that gives it, batch dim first, with the data inputs that it needs
 * alone; NULL where there is none. */
Graph *predict_graph(Elab *e, const PredictChoice *choice);

#endif
