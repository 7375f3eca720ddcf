/*
 * certificate.h -- declares the certificate of a plan: what it was made for and
 * what was found out about it.  Rows of certificate_fields.def are its
 * settings.
 */
#ifndef IR_PLAN_CERTIFICATE_H
#define IR_PLAN_CERTIFICATE_H

#include "support/support.h"

typedef enum CertificateField {
#define CERTIFICATE_FIELD(name, kind, meaning) CERTIFICATE_##name,
#include "ir/plan/certificate_fields.def"
  N_CERTIFICATE_FIELDS
} CertificateField;

typedef enum CertificateKind {
  CERTIFICATE_KIND_text,
  CERTIFICATE_KIND_count,
  CERTIFICATE_KIND_time, /* in picoseconds */
  CERTIFICATE_KIND_bytes,
  CERTIFICATE_KIND_number
} CertificateKind;

typedef struct CertificateValue {
  bool is_set;
  const char *text;
  int64_t amount; /* count, time or bytes */
  double number;
  Span span; /* of its line; nobody wrote a value without a source */
} CertificateValue;

typedef struct Certificate {
  CertificateValue values[N_CERTIFICATE_FIELDS];
} Certificate;

const char *certificate_field_name(CertificateField field);
CertificateKind certificate_field_kind(CertificateField field);
/* Sets a field to a value of its kind. */
void certificate_set_text(Certificate *certificate, CertificateField field,
                          const char *text);
void certificate_set_amount(Certificate *certificate, CertificateField field,
                            int64_t amount);
void certificate_set_number(Certificate *certificate, CertificateField field,
                            double number);
/* Prints the block with the fields that are set, in the order of the table.  A
 * text that no string can hold is left out. */
void certificate_print(Text *out, const Certificate *certificate);

#endif
