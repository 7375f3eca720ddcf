/*
 * transports.c -- chooses the transport of a run from transports.def.  It
 * stands apart from comm.c, which every transport calls.
 */
#include "runtime/comm/comm.h"

#include <string.h>

typedef struct TransportRow {
  int least_ranks;
  Status (*create)(Arena *arena, RankPlace place, int64_t limit_s, Comm **out);
} TransportRow;

typedef struct DeviceTransportRow {
  const char *device;
  Status (*create)(Arena *arena, Comm *host, Device *device, Comm **out);
} DeviceTransportRow;

static const TransportRow transport_rows[] = {
#define TRANSPORT(name, least_ranks) {least_ranks, comm_##name##_create},
#include "runtime/comm/transports.def"
};

static const DeviceTransportRow device_transport_rows[] = {
#define DEVICE_TRANSPORT(name, device) {#device, comm_##name##_create},
#include "runtime/comm/transports.def"
};

Status comm_create(Arena *arena, int64_t limit_s, Comm **out) {
  RankPlace place = comm_place();
  const TransportRow *row = NULL;
  for (int i = 0; i < ARRAY_LENGTH(transport_rows); i++)
    if (transport_rows[i].least_ranks <= place.world) row = &transport_rows[i];
  ASSERT(row);
  return row->create(arena, place, limit_s, out);
}

Status comm_for_device(Arena *arena, Comm *host, Device *device, Comm **out) {
  *out = host;
  if (host->world == 1) return STATUS_OK;
  for (int i = 0; i < ARRAY_LENGTH(device_transport_rows); i++)
    if (strcmp(device_transport_rows[i].device, device->name) == 0)
      return device_transport_rows[i].create(arena, host, device, out);
  return STATUS_OK;
}
