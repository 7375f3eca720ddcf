/*
 * detect.h -- writes the text of a cluster file for what this process may use.
 */
#ifndef DRIVER_DETECT_H
#define DRIVER_DETECT_H

#include "support/support.h"

/* Adds the text to `out`; `root` as of machine_read.  *out_unknown: the name of
 * a GPU that no preset has, so that the file lacks its rates; else NULL. */
Status driver_detect_cluster(Text *out, const char *root,
                             const char **out_unknown);

#endif
