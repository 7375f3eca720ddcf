/*
 * core_distance.h -- declares how far the cores of this process are apart.
 */
#ifndef TOOLS_TUNE_CORE_DISTANCE_H
#define TOOLS_TUNE_CORE_DISTANCE_H

#include <stdint.h>

/* Returns the nanoseconds in which a cache line goes from the first core that
 * this process may use to the last one and back, the shortest of a few
 * measurements, in some 10 ms.  Returns 0 if there is one core, or it cannot be
 * measured. */
int64_t core_distance_ns(void);

#endif
