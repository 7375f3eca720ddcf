/*
 * certificate.c -- prints the certificate of a plan.
 *
 *     certificate {
 *       model = "gpt2.dnn"
 *       step  = 45.81ms
 *     }
 */
#include "ir/plan/certificate.h"

#include "ir/cluster/cluster.h"

#include <string.h>

static const struct {
  const char *name;
  CertificateKind kind;
} fields[] = {
#define CERTIFICATE_FIELD(name, kind, meaning) {#name, CERTIFICATE_KIND_##kind},
#include "ir/plan/certificate_fields.def"
};

const char *certificate_field_name(CertificateField field) {
  return fields[field].name;
}

CertificateKind certificate_field_kind(CertificateField field) {
  return fields[field].kind;
}

void certificate_set_text(Certificate *certificate, CertificateField field,
                          const char *text) {
  ASSERT(fields[field].kind == CERTIFICATE_KIND_text);
  certificate->values[field] = (CertificateValue){.is_set = true, .text = text};
}

void certificate_set_amount(Certificate *certificate, CertificateField field,
                            int64_t amount) {
  ASSERT(fields[field].kind != CERTIFICATE_KIND_text &&
         fields[field].kind != CERTIFICATE_KIND_number);
  certificate->values[field] =
      (CertificateValue){.is_set = true, .amount = amount};
}

void certificate_set_number(Certificate *certificate, CertificateField field,
                            double number) {
  ASSERT(fields[field].kind == CERTIFICATE_KIND_number);
  certificate->values[field] =
      (CertificateValue){.is_set = true, .number = number};
}

/* A string of the language has no way to write a quote. */
static bool is_printed(const CertificateValue *value) {
  return value->is_set && !(value->text && strpbrk(value->text, "\"\n\r"));
}

static void print_value(Text *out, CertificateKind kind,
                        const CertificateValue *value) {
  switch (kind) {
  case CERTIFICATE_KIND_text: text_printf(out, "\"%s\"", value->text); return;
  case CERTIFICATE_KIND_count:
    quantity_print(out, UNIT_count, value->amount);
    return;
  case CERTIFICATE_KIND_time:
    quantity_print(out, UNIT_time, value->amount);
    return;
  case CERTIFICATE_KIND_bytes:
    quantity_print(out, UNIT_bytes, value->amount);
    return;
  case CERTIFICATE_KIND_number: text_add_real(out, value->number); return;
  }
  UNREACHABLE();
}

void certificate_print(Text *out, const Certificate *certificate) {
  int width = 0;
  for (int i = 0; i < N_CERTIFICATE_FIELDS; i++) {
    int n = (int)strlen(fields[i].name);
    if (is_printed(&certificate->values[i]) && n > width) width = n;
  }
  text_add(out, "certificate {\n");
  for (int i = 0; i < N_CERTIFICATE_FIELDS; i++) {
    if (!is_printed(&certificate->values[i])) continue;
    text_printf(out, "  %-*s = ", width, fields[i].name);
    print_value(out, fields[i].kind, &certificate->values[i]);
    text_add(out, "\n");
  }
  text_add(out, "}\n");
}
