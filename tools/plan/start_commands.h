/*
 * start_commands.h -- declares the commands that build the program of a plan
 * and start it.
 */
#ifndef TOOLS_PLAN_START_COMMANDS_H
#define TOOLS_PLAN_START_COMMANDS_H

#include "tools/commands/tools.h"

/* Appends the two commands for the plan that the options write to a file, as a
 * shell reads them. */
void start_commands(Text *out, Tool *tool, const Compilation *c);

#endif
