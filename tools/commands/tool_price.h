/*
 * tool_price.h -- declares how commands price a compiled model, and what
 * simulate, show and diff print of the price.
 */
#ifndef TOOLS_COMMANDS_TOOL_PRICE_H
#define TOOLS_COMMANDS_TOOL_PRICE_H

#include "driver/driver_price.h"
#include "tools/commands/tools.h"

/* ---- tool_price.c ---- */

/* Compiles what the options name and prices its training step, with spans if
 * they are wanted.  Returns an exit code; mistakes are printed. */
int tool_price(Tool *tool, bool wants_spans, Priced *out);
/* Prices another plan of the model that `first` has loaded. */
int tool_price_other(Tool *tool, const Priced *first, const char *plan,
                     bool wants_spans, Priced *out);
/* Reads the options that decide a price.  Returns an exit code; mistakes are
 * printed. */
int tool_price_request(Tool *tool, PriceRequest *out);
/* Returns how many plans are tried at a time. */
int tool_threads(void);

/* ---- simulate_model.c ---- */

/* Prints the step by term and whether it fits: words, or fields of an object.
 */
void priced_print(Text *out, const Priced *priced);
void priced_print_json(Text *out, const Priced *priced);
/* Prints how much of the price --profile has given; nothing without one. */
void priced_print_profile(Text *out, const Priced *priced);
void priced_print_profile_json(Text *out, const Priced *priced);

/* Returns the part of a step in which a class waits for other stages. */
double priced_bubble(const PriceClass *class);

/* ---- simulate_plans.c ---- */

/* Prices several plans for `dnnc simulate`.  Returns an exit code. */
int simulate_plans(Tool *tool);

/* ---- what_if.c ---- */

/* Returns a copy of the cluster with the changes of --what-if.  Returns NULL
 * after a mistake, which is printed. */
const Cluster *what_if(Tool *tool, const Cluster *cluster);

/* ---- trace_steps.c ---- */

/* Writes the spans as a timeline into a file. */
Status trace_step(Arena *arena, const Priced *priced, const char *path);

#endif
