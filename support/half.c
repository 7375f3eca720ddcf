/*
 * half.c -- rounds to 16-bit floats: to nearest, ties to even.  A NaN stays a
 * NaN.
 */
#include <math.h>
#include <string.h>

#include "support/support.h"

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t bf16_from_float(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float bf16_to_float(uint16_t half) {
  return float_of((uint32_t)half << 16);
}

uint16_t f16_from_float(float value) {
  uint32_t bits = bits_of(value);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x38800000) /* subnormal: units of 2^-24 */
    return (uint16_t)(sign |
                      (uint32_t)nearbyintf(float_of(magnitude) * 16777216.0f));
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return (uint16_t)(sign | ((rounded - 0x38000000) >> 13));
}

float f16_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00)
    return float_of(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  float value = magnitude < 0x400 ? (float)magnitude / 16777216.0f
                                  : float_of((magnitude << 13) + 0x38000000);
  return float_of(sign | bits_of(value));
}
