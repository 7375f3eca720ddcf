/*
 * page.h -- declares what the files that write the page of `dnnc show --html`
 * share.
 *
 * Every number of the page is in the object that --json prints.  It stands in
 * an element <data> with that object's key and value, so that a test can look
 * both up.
 */
#ifndef TOOLS_SHOW_PAGE_H
#define TOOLS_SHOW_PAGE_H

#include "tools/show/inspect.h"

/* ---- page_words.c ---- */

/* Prints text between tags, or inside of an attribute. */
void page_text(Text *out, const char *text);
/* Prints a number as <data data-key="terms_ps.product" value="5">5 ps</data>.
 */
void page_integer(Text *out, const char *key, int64_t value, const char *shown);
void page_real(Text *out, const char *key, double value, const char *shown);
/* Returns a time as "20.742 s"; the next one bytes as "1.25 GB". */
const char *page_time(Arena *arena, Ps time);
const char *page_bytes(Arena *arena, Bytes bytes);
/* Returns the number of a kind's colour, N of kN. */
int page_kind_colour(const KindRow *row);

/* ---- page_tables.c ---- */

void page_terms(Text *out, const Inspection *in);
void page_kinds(Text *out, const Inspection *in);
void page_sharding(Text *out, const Inspection *in);
void page_lines(Text *out, const Inspection *in);
void page_paths(Text *out, const Inspection *in);

/* ---- page_drawings.c ---- */

void page_legend(Text *out, const Inspection *in);
void page_timeline(Text *out, const Inspection *in, int index);
void page_memory(Text *out, const Inspection *in);

/* ---- page_style.c ---- */

extern const char page_style[];

#endif
