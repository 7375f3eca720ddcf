/* core_distance.c -- prints core_distance_ns of tools/tune/core_distance.h;
 * reality.py compiles it. */
#include "tools/tune/core_distance.h"

#include <stdio.h>

int main(void) {
  printf("%lld\n", (long long)core_distance_ns());
  return 0;
}
