/*
 * no_wait.c -- takes the wait of the staleness rule out of servers: a program
 * that is linked with --wrap=servers_open answers each push at once, though its
 * plan has a staleness.
 */
#include "runtime/rank/servers.h"

Status __real_servers_open(Run *run);
Status __wrap_servers_open(Run *run);

Status __wrap_servers_open(Run *run) {
  Status status = __real_servers_open(run);
  if (run->servers) run->servers->staleness = -1;
  return status;
}
