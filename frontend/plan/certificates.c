/*
 * certificates.c -- reads the certificate of a plan file.
 *
 *     certificate { step = 45.81ms }     values[CERTIFICATE_step].amount
 */
#include "frontend/plan/machines.h"

#include <string.h>

static bool read_value(CertificateKind kind, const Expr *x,
                       CertificateValue *out) {
  switch (kind) {
  case CERTIFICATE_KIND_text:
    out->text = x->name;
    return x->kind == EXPR_string;
  case CERTIFICATE_KIND_count:
    return machine_read_amount(x, UNIT_count, &out->amount);
  case CERTIFICATE_KIND_time: return machine_read_duration(x, &out->amount);
  case CERTIFICATE_KIND_bytes:
    return machine_read_amount(x, UNIT_bytes, &out->amount);
  case CERTIFICATE_KIND_number: return machine_read_number(x, &out->number);
  }
  UNREACHABLE();
}

static void read_setting(const Setting *setting, Certificate *out) {
  for (int i = 0; i < N_CERTIFICATE_FIELDS; i++) {
    CertificateField field = (CertificateField)i;
    if (strcmp(certificate_field_name(field), setting->path.names[0]) != 0)
      continue;
    CertificateValue value = {.span = setting->path.spans[0]};
    value.is_set = setting->value && read_value(certificate_field_kind(field),
                                                setting->value, &value);
    if (value.is_set) out->values[i] = value;
  }
}

const Certificate *certificate_read(Arena *arena, const Ast *ast) {
  Certificate *out = NULL;
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    if (item->kind != ITEM_block || strcmp(item->block, "certificate") != 0)
      continue;
    if (!out) out = ARENA_NEW(arena, Certificate);
    for (int k = 0; k < item->n_settings; k++)
      read_setting(&item->settings[k], out);
  }
  return out;
}
