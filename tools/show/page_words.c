/*
 * page_words.c -- writes words and numbers of the page of `dnnc show --html`.
 */
#include "tools/show/page.h"

void page_text(Text *out, const char *text) {
  for (; *text; text++) {
    switch (*text) {
    case '<': text_add(out, "&lt;"); break;
    case '>': text_add(out, "&gt;"); break;
    case '&': text_add(out, "&amp;"); break;
    case '"': text_add(out, "&quot;"); break;
    default: text_add_n(out, text, 1); break;
    }
  }
}

static void add_data(Text *out, const char *key, const char *value,
                     const char *shown) {
  text_printf(out, "<data data-key=\"%s\" value=\"%s\">", key, value);
  page_text(out, shown);
  text_add(out, "</data>");
}

void page_integer(Text *out, const char *key, int64_t value,
                  const char *shown) {
  add_data(out, key, arena_printf(out->arena, "%lld", (long long)value),
           shown ? shown : text_with_commas(out->arena, value));
}

void page_real(Text *out, const char *key, double value, const char *shown) {
  Text text = text_create(out->arena);
  text_add_real(&text, value);
  add_data(out, key, text_string(&text), shown);
}

const char *page_time(Arena *arena, Ps time) {
  if (time >= 1000000000000)
    return arena_printf(arena, "%.3f s", (double)time * 1e-12);
  if (time >= 1000000000)
    return arena_printf(arena, "%.3f ms", (double)time * 1e-9);
  return arena_printf(arena, "%.3f us", (double)time * 1e-6);
}

const char *page_bytes(Arena *arena, Bytes bytes) {
  return text_quantity(arena, (double)bytes, "B");
}

int page_kind_colour(const KindRow *row) {
  enum { FIRST_TRANSIENT = 3 };
  for (int k = 0; !row->is_persistent && k < N_PEAK_KINDS; k++)
    if (row->name == peak_kind_name((PeakKind)k)) return FIRST_TRANSIENT + k;
  return row->name == role_name(ROLE_param)             ? 0
         : row->name == role_name(ROLE_optimizer_state) ? 1
                                                        : 2;
}
