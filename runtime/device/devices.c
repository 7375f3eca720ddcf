/*
 * devices.c -- makes the device of a name, from devices.def.  It
 * stands apart from device.c, which every device calls.
 */
#include "runtime/device/device.h"

#include <string.h>

typedef struct DeviceRow {
  const char *name;
  Status (*create)(Arena *arena, Device **out);
} DeviceRow;

static const DeviceRow device_rows[] = {
#define DEVICE(name) {#name, device_##name##_create},
#include "runtime/device/devices.def"
};

Status device_create(const char *name, Arena *arena, Device **out) {
  for (int i = 0; i < ARRAY_LENGTH(device_rows); i++)
    if (strcmp(device_rows[i].name, name) == 0)
      return device_rows[i].create(arena, out);
  return status_make(STATUS_unavailable, "no device '%s'; this runtime has"
#define DEVICE(name) " " #name
#include "runtime/device/devices.def"
                     ,
                     name);
}
