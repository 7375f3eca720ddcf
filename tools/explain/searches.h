/*
 * searches.h -- declares further searches for a plan of a loaded model, with
 * other pins, ranks or memory, and what is said where no plan was found.
 */
#ifndef TOOLS_EXPLAIN_SEARCHES_H
#define TOOLS_EXPLAIN_SEARCHES_H

#include "planner/conflicts.h"
#include "tools/commands/planning.h"

/* ---- searches.c ---- */

/* Returns the same planning without these demands, in the arena of the tool.
 * It prices at most `most` plans.  Mistakes are not expected. */
Planning planning_without(const Planning *planning, const ConflictCase *one,
                          int most);

/* Fills in the same planning under the pins of this plan file, as `dnnc plan`
 * with these ranks and this effort has it, without progress.  Returns false
 * after mistakes, which are in `diags`. */
bool planning_with(const Planning *planning, const char *pins, int64_t ranks,
                   int effort, Diags *diags, Planning *out);
/* Searches, and returns what `dnnc plan` would print of it. */
SearchResult planning_find(Planning *planning);
/* Returns a plan that was priced as `dnnc plan` would print it. */
FoundPlan planning_chosen(Planning *planning, const char *text);
/* Returns the memory of a device that leaves a rank so much. */
Bytes planning_device_memory(const Planning *planning, Bytes memory);
/* Returns what the device with the least memory leaves a rank. */
Bytes planning_usable_memory(const Planning *planning);

/* ---- missing_stages.c ---- */

/* Prints the stages that lack the most bytes, a line each, with the parts of
 * their arenas. */
void print_missing_stages(Text *out, const Priced *priced);
void print_missing_stages_json(Text *out, const Priced *priced);

/* ---- plan_conflicts.c ---- */

/* Prints the mistakes of pins that no search can keep.  Returns false if there
 * are none. */
bool plan_report_refusal(const Planning *planning);
/* Prints why no plan was found: the missing bytes or the mistakes, pins and
 * limits in conflict, and what to change.  Returns an exit code. */
int plan_report_none(Planning *planning);

#endif
