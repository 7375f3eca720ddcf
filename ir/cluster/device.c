/*
 * device.c -- looks up the presets of devices.def.
 */
#include "ir/cluster/cluster.h"

#include <string.h>

#define KILO INT64_C(1000)
#define MEGA (1000 * KILO)
#define GIGA (1000 * MEGA)
#define TERA (1000 * GIGA)
#define GIBI (INT64_C(1) << 30)

enum {
#define DEVICE(name, target, driver_name, what) PRESET_##name,
#include "ir/cluster/devices.def"
  N_PRESETS
};

static const DevicePreset presets[] = {
#define DEVICE(name, target, driver_name, what)                                \
  {#name, target, driver_name, what},
#include "ir/cluster/devices.def"
};

static const DeviceConstant constants[] = {
#define CONSTANT(device, field, value, mark, date, source)                     \
  {PRESET_##device, DEVICE_##field, value, mark, date, source},
#include "ir/cluster/devices.def"
};

const DeviceFieldInfo *device_field_info(DeviceField field) {
  enum { required = 1, optional = 0 };
  static const DeviceFieldInfo rows[] = {
#define DEVICE_FIELD(name, unit, need, what) {#name, UNIT_##unit, need, what},
#include "ir/cluster/device_fields.def"
  };
  return &rows[field];
}

int64_t device_flops(const ClusterDevice *device, DType dtype) {
  switch (dtype) {
  case DT_f64: return device->values[DEVICE_flops_f64];
  case DT_f32: return device->values[DEVICE_flops_f32];
  case DT_bf16: return device->values[DEVICE_flops_bf16];
  case DT_f16: return device->values[DEVICE_flops_f16];
  case DT_f8e4m3:
  case DT_f8e5m2: return device->values[DEVICE_flops_f8];
  default: return 0;
  }
}

int64_t device_usable_memory(const ClusterDevice *device) {
  int64_t memory = device->values[DEVICE_memory];
  int64_t reserve = device->values[DEVICE_reserve];
  return reserve < memory ? memory - reserve : 0;
}

int device_preset_count(void) {
  return N_PRESETS;
}

const DevicePreset *device_preset(int index) {
  ASSERT(index >= 0 && index < N_PRESETS);
  return &presets[index];
}

int device_preset_find(const char *name) {
  for (int i = 0; i < N_PRESETS; i++)
    if (strcmp(presets[i].name, name) == 0) return i;
  return -1;
}

const DeviceConstant *device_preset_constant(int preset, DeviceField field) {
  for (int i = 0; i < ARRAY_LENGTH(constants); i++)
    if (constants[i].preset == preset && constants[i].field == field)
      return &constants[i];
  return NULL;
}

ClusterDevice device_of_preset(int preset, Names *names) {
  ClusterDevice device = {name_intern(names, device_preset(preset)->name),
                          presets[preset].target,
                          {0}};
  for (int i = 0; i < N_DEVICE_FIELDS; i++) {
    const DeviceConstant *constant =
        device_preset_constant(preset, (DeviceField)i);
    if (constant) device.values[i] = constant->value;
  }
  return device;
}

const char *device_target(int index) {
  for (int i = 0; i < N_PRESETS; i++) {
    bool is_new = true;
    for (int k = 0; k < i && is_new; k++)
      is_new = strcmp(presets[k].target, presets[i].target) != 0;
    if (is_new && index-- == 0) return presets[i].target;
  }
  return NULL;
}
