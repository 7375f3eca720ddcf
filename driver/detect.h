/*
 * detect.h -- writes the text of a cluster file for what this process may use.
 */
#ifndef DRIVER_DETECT_H
#define DRIVER_DETECT_H

#include "support/support.h"

/* A measured link; zeros: nobody has measured it. */
typedef struct DetectedLink {
  int64_t bandwidth; /* bytes a second that a machine sends */
  int64_t latency;   /* picoseconds */
} DetectedLink;

/* Adds the text to `out`; `root` as of machine_read, `network` the
 * links between machines.  *out_unknown: the name of
 * a GPU that no preset has, so that the file lacks its rates; else NULL. */
Status driver_detect_cluster(Text *out, const char *root,
                             const DetectedLink *network,
                             const char **out_unknown);

#endif
