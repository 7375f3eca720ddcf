/*
 * messages.c -- prints what the stations found wrong with a model.
 */
#include "driver/driver.h"

#include <stdio.h>

bool driver_report(Module *module) {
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  fputs(text_string(&text), stderr);
  return diags_errors(module->diags) > 0;
}
