/*
 * page_stages.c -- writes the tables of classes of ranks and of stages of the
 * page of `dnnc show --html`.
 */
#include "tools/show/page.h"
#include "tools/show/show_stages.h"

static double seconds(Ps time) {
  return (double)time * 1e-12;
}

static void add_seconds_cell(Text *out, const char *key, Ps time) {
  text_add(out, "<td class=\"n\">");
  page_real(out, key, seconds(time), page_time(out->arena, time));
  text_add(out, "</td>");
}

static void add_arena_cells(Text *out, int row, const ArenaParts *arena) {
  page_bytes_cell(out, page_key(out, "ranks", row, "arena.persistent"),
                  arena->persistent);
  page_bytes_cell(out, page_key(out, "ranks", row, "arena.step"), arena->step);
  page_bytes_cell(out, page_key(out, "ranks", row, "arena.frames"),
                  arena->frames);
  page_bytes_cell(out, page_key(out, "ranks", row, "arena.messages"),
                  arena->messages);
  page_bytes_cell(out, page_key(out, "ranks", row, "arena.scratch"),
                  arena->scratch);
}

static void add_class(Text *out, const Priced *p, int i) {
  const PriceClass *class = &p->price.classes[i];
  const EntryPoint *step = priced_program(p, i)->step;
  text_add(out, "<tr><td>");
  for (int k = 0; k < step->stages.n; k++) {
    text_add(out, k ? " " : "");
    page_integer(out, arena_printf(out->arena, "ranks.%d.stages.%d", i, k),
                 step->stages.data[k].number, NULL);
  }
  text_add(out, "</td>");
  page_count_cell(out, page_key(out, "ranks", i, "first_rank"),
                  class->first_rank);
  page_count_cell(out, page_key(out, "ranks", i, "ranks"), class->ranks);
  add_seconds_cell(out, page_key(out, "ranks", i, "compute_s"), class->compute);
  add_seconds_cell(out, page_key(out, "ranks", i, "exposed_comm_s"),
                   class->exposed);
  page_share_cell(out, page_key(out, "ranks", i, "bubble"),
                  priced_bubble(class));
  page_bytes_cell(out, page_key(out, "ranks", i, "peak_bytes"),
                  priced_program(p, i)->peak);
  add_arena_cells(out, i, &step->arena);
  text_add(out, "</tr>\n");
}

static void add_classes(Text *out, const Priced *p) {
  static const char *const heads[] = {
      "stages", ">first rank", ">ranks", ">compute", ">wait",     ">bubble",
      ">arena", ">persistent", ">step",  ">frames",  ">messages", ">scratch"};
  page_begin_table(out, heads, ARRAY_LENGTH(heads));
  for (int i = 0; i < p->price.n_classes; i++) add_class(out, p, i);
  page_end_table(out);
}

static void add_stages(Text *out, const Priced *p) {
  static const char *const heads[] = {">stage",           ">first rank",
                                      ">ranks",           ">parameters",
                                      ">bytes on a rank", "blocks"};
  StageRows rows = stage_rows(out->arena, p->c);
  page_begin_table(out, heads, ARRAY_LENGTH(heads));
  for (int i = 0; i < rows.n; i++) {
    const StageRow *row = &rows.data[i];
    text_add(out, "<tr>");
    page_count_cell(out, page_key(out, "stages", i, "stage"),
                    row->stage->number);
    page_count_cell(out, page_key(out, "stages", i, "first_rank"),
                    row->stage->first_rank);
    page_count_cell(out, page_key(out, "stages", i, "ranks"),
                    mesh_ranks(&row->stage->graph->mesh));
    page_count_cell(out, page_key(out, "stages", i, "parameters"),
                    row->parameters);
    page_bytes_cell(out, page_key(out, "stages", i, "bytes"), row->bytes);
    page_name_cell(out, stage_blocks(out->arena, row));
    text_add(out, "</tr>\n");
  }
  page_end_table(out);
}

void page_stages(Text *out, const Inspection *in) {
  add_classes(out, in->priced);
  add_stages(out, in->priced);
}
