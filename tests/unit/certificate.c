// links: frontend ir support
/*
 * certificate.c -- checks that the certificate of a plan is read as it was
 * printed, whatever settings it has.
 */
#include "frontend/plan/machines.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

static void out_of_memory(void *user) {
  (void)user;
  abort();
}

static void set(Certificate *certificate, CertificateField field) {
  switch (certificate_field_kind(field)) {
  case CERTIFICATE_KIND_text:
    certificate_set_text(certificate, field, "a 'b' \\ c");
    return;
  case CERTIFICATE_KIND_number:
    certificate_set_number(certificate, field, 0.0107);
    return;
  case CERTIFICATE_KIND_count:
  case CERTIFICATE_KIND_bytes:
    certificate_set_amount(certificate, field, 1024 + (int)field);
    return;
  case CERTIFICATE_KIND_time: /* a month, which no link takes */
    certificate_set_amount(certificate, field, INT64_C(2592000123456789000));
    return;
  }
}

static void expect_equal(const Certificate *a, const Certificate *b) {
  for (int i = 0; i < N_CERTIFICATE_FIELDS; i++) {
    const CertificateValue *x = &a->values[i], *y = &b->values[i];
    const char *name = certificate_field_name((CertificateField)i);
    cr_expect_eq(x->is_set, y->is_set, "%s", name);
    if (x->text) cr_expect(y->text && !strcmp(x->text, y->text), "%s", name);
    cr_expect_eq(x->number, y->number, "%s", name);
    /* Long times are rounded to 53 bits. */
    cr_expect_leq(llabs(x->amount - y->amount), x->amount >> 52, "%s", name);
  }
}

/* Prints, parses and checks a certificate; NULL: there is no block. */
static const Certificate *read_again(Arena *arena, const char *text) {
  Source source = {"p.plan", text, strlen(text)};
  Diags *diags = diags_create(arena);
  const Ast *ast = ast_parse(arena, names_create(arena), diags, &source);
  machines_check(arena, diags, ast);
  Text messages = text_create(arena);
  diags_print(diags, &messages);
  cr_expect_eq(diags_errors(diags), 0, "%s%s", text, text_string(&messages));
  return certificate_read(arena, ast);
}

Test(certificate, every_setting_is_read_as_it_was_printed) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  Certificate all = {0};
  for (int i = 0; i <= N_CERTIFICATE_FIELDS; i++) {
    Certificate one = {0};
    if (i < N_CERTIFICATE_FIELDS) {
      set(&one, (CertificateField)i);
      set(&all, (CertificateField)i);
    }
    const Certificate *printed = i < N_CERTIFICATE_FIELDS ? &one : &all;
    Text text = text_create(arena);
    certificate_print(&text, printed);
    const Certificate *again = read_again(arena, text_string(&text));
    cr_assert(again);
    expect_equal(printed, again);
  }
  memory_destroy(memory);
}

Test(certificate, a_plan_without_one_has_none) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  cr_expect_null(read_again(arena, "mesh { data = 2 }\nplan { }\n"));
  memory_destroy(memory);
}
