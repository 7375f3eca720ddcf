/*
 * bundle.c -- prints the programs of all ranks, and what they have in common,
 * as the constant tables that runtime/program.h declares: groups, kernels,
 * settings, and which rank runs which program.
 *
 *     const DnnBundle dnn_bundle = {.world = 4, .n_programs = 2, ...
 *
 * program.c prints what is of one program.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/program.h"

/* ---- kernels ---- */

/* Names of tables begin with `prefix`. */
static void add_kernels(ProgramPrinter *printer, const char *prefix,
                        const KernelSet *set, const DeviceCode *device) {
  Text *out = printer->out;
  for (int i = 0; i < set->kernels.n && !device->module_of; i++)
    text_printf(out, "DnnKernelFn %s;\n", set->kernels.data[i].name);
  text_printf(out, "static const DnnKernel %skernels[] = {\n", prefix);
  for (int i = 0; i < set->kernels.n; i++) {
    const KernelText *kernel = &set->kernels.data[i];
    text_add(out, "  {.name = ");
    program_add_string(out, kernel->name);
    if (!device->module_of) {
      text_printf(out, ", .function = %s, .module = -1},\n", kernel->name);
      continue;
    }
    text_printf(out,
                ", .module = %d, .grid = {%u, %u, %u}, .block = {%u, %u, %u}, "
                ".shared_bytes = %u},\n",
                device->module_of[i], kernel->grid[0], kernel->grid[1],
                kernel->grid[2], kernel->block[0], kernel->block[1],
                kernel->block[2], kernel->shared_bytes);
  }
  text_add(out, "  {.name = 0}};\n");
}

/* ---- the bundle ---- */

/* main() adds the address of the image to all its pointers before anything
 * reads them. */
static void add_main(ProgramPrinter *printer) {
  size_t links = image_add_links(printer->image);
  text_printf(printer->out,
              "int rank_main(int, char **, const DnnBundle *);\n"
              "int main(int argc, char **argv) {\n"
              "  const uint32_t *links = AT(uint32_t, %zu);\n"
              "  for (int i = 0; i < %d; i++)\n"
              "    *(uint64_t *)(dnn_tables + links[i]) += "
              "(uint64_t)dnn_tables;\n"
              "  return rank_main(argc, argv, &dnn_bundle);\n"
              "}\n",
              links, printer->image->links.n);
}

static int64_t count_parameters(const ProgramPrinter *printer) {
  int64_t n = 0;
  for (int i = 0; i < printer->tensors.n; i++) {
    const PersistentBuffer *buffer = printer->tensors.data[i]->buffer;
    if (buffer->role == ROLE_param) n += type_elements(buffer->type);
  }
  return n;
}

/* Members that are equal in all programs. */
static void add_common_members(ProgramPrinter *printer, int64_t parameters) {
  const BundleInput *input = printer->input;
  const BuildOptions *options = input->options;
  Text *out = printer->out;
  const char *const names[] = {"model",      "model_dir", "target",
                               "model_hash", "plan_hash", "compiler"};
  const char *const texts[] = {input->model->name,       input->model_dir,
                               options->backend->device, options->model_hash,
                               options->plan_hash,       "dnnc"};
  text_add(out, options->pacer ? "  .is_paced = 1,\n  " : "  ");
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    text_printf(out, ".%s = ", names[i]);
    program_add_string(out, texts[i]);
    text_add(out, ", ");
  }
  text_printf(out,
              "\n  .world = %d, .parameters = %" PRId64
              ", .n_kernels = %d, .kernels = kernels,\n"
              "  .n_data = %d, .data = data,\n",
              options->ranks, parameters, input->kernels->kernels.n,
              input->model->n_data);
  program_add_groups(printer);
  if (input->device->modules_text)
    text_printf(out, "  .n_modules = %d, .modules = dnn_modules,\n",
                input->device->n_modules);
  const PlanServers *servers = &input->options->servers;
  if (servers->n > 0)
    text_printf(out,
                "  .first_server = %d, .n_servers = %d, .staleness = %" PRId64
                ",\n",
                servers->first_rank, servers->n, servers->staleness);
  program_add_settings(printer);
  if (input->model->has_sample) text_add(out, "  .sample = &sample,\n");
}

static void add_bundle(ProgramPrinter *printer, const Table *persistent) {
  const RankPrograms *ranks = printer->input->ranks;
  Text *out = printer->out;
  int64_t parameters = count_parameters(printer);
  text_add(out, "static const DnnProgram programs[] = {\n");
  for (int i = 0; i < ranks->n; i++) {
    text_add(out, "  {\n");
    add_common_members(printer, parameters);
    program_add_members(printer, i, persistent[i]);
    text_add(out, "  },\n");
  }
  text_add(out, "};\nstatic const DnnRankRow rank_rows[] = {");
  for (int i = 0; i < ranks->n_rows; i++)
    text_printf(out, "%s{%d, %d}", i ? ", " : "", ranks->rows[i].first,
                ranks->rows[i].program);
  text_printf(out,
              "};\nconst DnnBundle dnn_bundle = {\n"
              "  .abi = DNN_ABI, .world = %d, .n_programs = %d, .programs = "
              "programs, .n_rows = %d, .rows = rank_rows};\n",
              printer->input->options->ranks, ranks->n, ranks->n_rows);
}

RankPrograms rank_programs_of_one(Arena *arena, const RankProgram *program) {
  const RankProgram **programs = ARENA_NEW(arena, const RankProgram *);
  programs[0] = program;
  return (RankPrograms){.programs = programs,
                        .n = 1,
                        .rows = ARENA_NEW(arena, DnnRankRow),
                        .n_rows = 1};
}

/* The text that includes the image and checks that the compiler gives structs
 * the sizes that they have there. */
static void add_table_reader(Text *out) {
  text_add(out,
           "#include \"program.h\"\n"
           "__asm__(\".pushsection .data\\n.balign 64\\n\"\n"
           "  \"dnn_tables: .incbin \\\"" PROGRAM_TABLES
           "\\\"\\n.popsection\");\n"
           "extern char dnn_tables[];\n"
           "#define AT(type, place) ((const type *)(dnn_tables + place))\n");
  const struct {
    const char *name;
    size_t bytes;
  } structs[] = {{"DnnInstr", sizeof(DnnInstr)},
                 {"DnnTensor", sizeof(DnnTensor)},
                 {"DnnGemm", sizeof(DnnGemm)},
                 {"DnnConv", sizeof(DnnConv)},
                 {"DnnGroup", sizeof(DnnGroup)},
                 {"DnnPairs", sizeof(DnnPairs)},
                 {"DnnCollective", sizeof(DnnCollective)},
                 {"DnnRankOffset", sizeof(DnnRankOffset)},
                 {"DnnSegment", sizeof(DnnSegment)},
                 {"DnnCall", sizeof(DnnCall)},
                 {"DnnPeriodCall", sizeof(DnnPeriodCall)},
                 {"DnnValue", sizeof(DnnValue)}};
  for (int i = 0; i < ARRAY_LENGTH(structs); i++)
    text_printf(out, "_Static_assert(sizeof(%s) == %zu, \"layout\");\n",
                structs[i].name, structs[i].bytes);
}

ProgramTables bundle_tables(Arena *arena, const BundleInput *input) {
  Text body = text_create(arena);
  ProgramTables tables = {0};
  ProgramPrinter printer = {
      .image = image_create(arena), .out = &body, .input = input};
  Table *persistent = ARENA_ARRAY(arena, Table, input->ranks->n);
  add_table_reader(&body);
  if (input->device->modules_text) text_add(&body, input->device->modules_text);
  if (input->plain_device->modules_text)
    text_add(&body, input->plain_device->modules_text);
  program_collect_groups(&printer);
  program_collect_persistent(&printer);
  add_kernels(&printer, "", input->kernels, input->device);
  if (input->plain_kernels)
    add_kernels(&printer, "plain_", input->plain_kernels, input->plain_device);
  for (int i = 0; i < input->ranks->n; i++) {
    int64_t bytes = program_arena_bytes(input->ranks->programs[i]);
    if (bytes > tables.arena_bytes) tables.arena_bytes = bytes;
    persistent[i] = program_add_tables(&printer, i);
  }
  program_add_data(&printer);
  program_add_metrics(&printer);
  program_add_sample(&printer);
  add_bundle(&printer, persistent);
  add_main(&printer);
  tables.text = text_string(&body);
  tables.bytes = text_string(&printer.image->bytes);
  tables.n = printer.image->bytes.n;
  return tables;
}
