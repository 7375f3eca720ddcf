/*
 * messages.c -- prints the messages that the front end and the passes have
 * collected about a model.
 */
#include "driver/driver.h"

#include <stdio.h>

bool driver_report(Module *module) {
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  fputs(text_string(&text), stderr);
  return diags_errors(module->diags) > 0;
}
