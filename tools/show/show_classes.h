/*
 * show_classes.h -- declares what commands print of classes of ranks.
 */
#ifndef TOOLS_SHOW_SHOW_CLASSES_H
#define TOOLS_SHOW_SHOW_CLASSES_H

#include "tools/commands/tool_price.h"

/* Returns the arena of a rank of this class. */
Bytes priced_peak_of(const Priced *priced, const PriceClass *class);
/* Returns the bytes that a rank of this class may use. */
Bytes priced_memory_of(const Priced *priced, const PriceClass *class);

/* Prints times and memory of the classes, a line each or fewer. */
void priced_print_classes(Text *out, const Priced *priced);

#endif
