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

/* ---- page.c ---- */

/* Prints a page as far as its title, which the caller prints. */
void page_begin(Text *out);
/* Ends the title, and begins the body. */
void page_begin_body(Text *out);

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

/* Returns "meshes.3.step_ps". */
const char *page_key(Text *out, const char *table, int row, const char *field);
/* Begins a table; a head that begins with '>' is that of numbers. */
void page_begin_table(Text *out, const char *const *heads, int n);
void page_end_table(Text *out);
void page_time_cell(Text *out, const char *key, Ps time);
void page_bytes_cell(Text *out, const char *key, Bytes bytes);
void page_count_cell(Text *out, const char *key, int64_t count);
void page_share_cell(Text *out, const char *key, double share);
void page_name_cell(Text *out, const char *text);
void page_terms(Text *out, const Inspection *in);
void page_kinds(Text *out, const Inspection *in);
/* Prints the classes of ranks of a plan with stages, and its stages. */
void page_stages(Text *out, const Inspection *in);
/* Draws what each class of ranks computes, a row each (page_calls.c). */
void page_calls(Text *out, const Inspection *in);
void page_sharding(Text *out, const Inspection *in);
void page_lines(Text *out, const Inspection *in);
void page_paths(Text *out, const Inspection *in);

/* ---- page_drawings.c ---- */

/* Draws the ticks of a time axis from 0 on, over and below a drawing of this
 * height, which is as wide as those of timelines; it is higher by PAGE_AXIS. */
enum { PAGE_WIDTH = 1100, PAGE_LEFT = 150, PAGE_RIGHT = 10, PAGE_AXIS = 22 };
void page_time_axis(Text *out, Ps length, int height);
void page_legend(Text *out, const Inspection *in);
void page_timeline(Text *out, const Inspection *in, int index);
void page_memory(Text *out, const Inspection *in);

/* ---- page_search.c ---- */

/* Prints how the plan was found. */
void page_search(Text *out, const Inspection *in);

/* ---- page_style.c ---- */

extern const char page_style[];

#endif
