// links: codegen passes ir
/*
 * build.c -- tests selection, tables and bundles with a runtime of a few lines,
 * which prints the tables and runs the kernels.
 */
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/select.h"
#include "tests/unit/values.h"

TestSuite(build, .fini = modules_destroy);

/* ---- graphs to launches ---- */

typedef struct Selected {
  Module *module;
  Graph *graph;
  EntryPoint entry;
  PersistentBuffers persistent;
  LaunchList launches;
  KernelSet *set;
} Selected;

static Selected selected_create(const char *text) {
  Selected selected = {.module = module_create()};
  Module *module = selected.module;
  const Backend *backend = backend_find("cpu");
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){.path = "test", .text = text, .n = strlen(text)};
  selected.graph = graph_parse(module, source);
  Text errors = text_create(module->arena);
  diags_print(module->diags, &errors);
  cr_assert(selected.graph != NULL, "%s", text_string(&errors));
  PassContext ctx = {
      .module = module, .scratch = module->arena, .target = &backend->target};
  persistent_buffers_add(&selected.persistent, module->arena, selected.graph,
                         &backend->target);
  selected.entry = entry_point_of_list(
      module->arena, ENTRY_train,
      instructions_of(module->arena, selected.graph, &backend->target));
  selected.entry.batch = 8;
  ProgramStage *stage = entry_point_stage(&selected.entry);
  stage->assignment = buffer_assign(&ctx, stage, &selected.persistent);
  selected.set = kernel_set_create(module, backend);
  return selected;
}

static Status select_into(Selected *selected) {
  return select_entry_point(selected->set, &selected->entry, NULL, NULL,
                            &selected->launches);
}

/* "kernel gemm collective wait ..." */
static const char *ops_of(const Selected *selected) {
  static const char *const names[] = {"kernel", "gemm",       "conv", "copy",
                                      "zero",   "collective", "wait"};
  Text out = text_create(selected->module->arena);
  for (int i = 0; i < selected->launches.n; i++)
    text_printf(&out, "%s%s", i ? " " : "",
                names[selected->launches.data[i]->op]);
  return text_string(&out);
}

static const char linear[] =
    "graph linear {\n"
    "  %0 = input {index = 0} : f32[B:8, P:6] data \"d.x\"\n"
    "  %1 = input {index = 1} : f32[P:6, K:5] param \"w\" normal(0.5)\n"
    "  %2 = input {index = 2} : f32[K:5] param \"b\"\n"
    "  %3 = dot %0, %1 {over = [P]} : f32[B:8, K:5]\n"
    "  %4 = add %3, %2 : f32[B:8, K:5] \"y\"\n"
    "  %5 = split_dim %4 {dim = B, to = [M, N], sizes = [2, 4]} : "
    "f32[M:2, N:4, K:5]\n"
    "  %6 = sum %5 {over = [M, N, K]} : f32[] \"loss\"\n"
    "  output loss \"loss\" %6\n"
    "}\n";

Test(build, views_make_no_launches) {
  Selected selected = selected_create(linear);
  cr_assert_eq(select_into(&selected).code, STATUS_ok);
  cr_expect_str_eq(ops_of(&selected), "gemm kernel kernel");
  const Launch *gemm = selected.launches.data[0];
  cr_expect(gemm->gemm.m == 8 && gemm->gemm.n == 5 && gemm->gemm.k == 6);
  cr_expect_eq(gemm->flops, 480);
  cr_expect_eq(gemm->checks.data[1], 40);
  cr_expect_str_eq(selected.launches.data[1]->path, "y");
}

/* A rank has 4 of 8 rows and 3 of 6 terms: 2 * 4 * 5 * 3 operations.  It reads
 * 12 + 15 numbers and writes 20. */
Test(build, launches_have_the_work_of_one_rank) {
  Selected selected = selected_create(
      "graph g mesh(d = 2, t = 2) {\n"
      "  %0 = input {index = 0} : f32[B:8@d, P:6@t] data \"d.x\"\n"
      "  %1 = input {index = 1} : f32[P:6@t, K:5] data \"d.w\"\n"
      "  %2 = dot %0, %1 {over = [P]} : f32[B:8@d, K:5; sum@t]\n"
      "  %3 = all_reduce %2 {axes = [t], reduce = sum, bucket = 0} : "
      "f32[B:8@d, K:5]\n"
      "  output result \"y\" %3\n"
      "}\n");
  cr_assert_eq(select_into(&selected).code, STATUS_ok);
  cr_expect_eq(selected.launches.data[0]->flops, 120);
  cr_expect_eq(selected.launches.data[0]->bytes_moved, 4 * (12 + 15 + 20));
}

Test(build, collectives_are_waited_for_by_the_first_reader) {
  Selected selected = selected_create(
      "graph g mesh(data = 2) {\n"
      "  %0 = input {index = 0} : f32[B:8@data, C:3] data \"d.x\"\n"
      "  %1 = sum %0 {over = [B]} : f32[C:3; sum@data]\n"
      "  %2 = all_reduce %1 {axes = [data], reduce = sum, bucket = 0} : "
      "f32[C:3]\n"
      "  %3 = exp %0 : f32[B:8@data, C:3]\n"
      "  %4 = add %3, %2 : f32[B:8@data, C:3]\n"
      "  output result \"y\" %4\n"
      "}\n");
  cr_assert_eq(select_into(&selected).code, STATUS_ok);
  cr_expect_str_eq(ops_of(&selected), "kernel collective kernel wait kernel");
  const DnnCollective *what = &selected.launches.data[1]->collective;
  cr_expect(what->group->n_digits == 1 && what->group->digits[0].size == 2 &&
            what->group->digits[0].stride == 1 && what->n_parts == 1);
  cr_expect_eq(selected.launches.data[1]->counts.data[0], 3);
}

/* Shards of a dim and members of a group, on axes that are no neighbours and in
 * either order. */
Test(build, groups_are_digits_of_axes) {
  Selected selected = selected_create(
      "graph g mesh(data = 2, time = 2~, seq = 3, tensor = 4) {\n"
      "  %0 = input {index = 0} : f32[B:8@(tensor, data), C:3] data \"d.x\"\n"
      "  %1 = input {index = 1} : i64[] seed \"\"\n"
      "  %2 = input {index = 2} : i32[] step \"\"\n"
      "  %3 = random_keep %1, %2 {to = [B, C], sizes = [8, 3], value = 0.5, "
      "stream = \"s\"} : bool[B:8@(tensor, data), C:3]\n"
      "  %4 = mul %0, %3 : f32[B:8@(tensor, data), C:3]\n"
      "  %5 = sum %4 {over = [B]} : f32[C:3; sum@(data, tensor)]\n"
      "  %6 = all_reduce %5 {axes = [tensor, data], reduce = sum, bucket = 0} "
      ": f32[C:3]\n"
      "  output result \"y\" %6\n"
      "}\n");
  cr_assert_eq(select_into(&selected).code, STATUS_ok);
  cr_assert_str_eq(ops_of(&selected), "kernel kernel kernel collective wait");
  const DnnRankOffset *offset =
      &selected.launches.data[0]->rank_offsets.data[0];
  const DnnGroup *shards = offset->group;
  cr_expect(offset->factor == 1 && shards->ranks == 24 && shards->size == 8 &&
            shards->n_digits == 2);
  cr_expect(shards->digits[0].size == 4 && shards->digits[0].stride == 1);
  cr_expect(shards->digits[1].size == 2 && shards->digits[1].stride == 12);
  /* Members of a sum are in the order of ranks, however the axes are listed. */
  const DnnGroup *group = selected.launches.data[3]->collective.group;
  cr_expect(group->n_digits == 2 && group->digits[0].stride == 12 &&
            group->digits[1].stride == 1);
}

/* The first launch of each segment and how many it has, then the calls, each
 * with its micro-batch, such as "0+1 1+4 / 0 1(0, first) 1(1)". */
static const char *calls_of(const Selected *selected) {
  const LaunchList *list = &selected->launches;
  Text out = text_create(selected->module->arena);
  for (int i = 0; i < list->segments.n; i++)
    text_printf(&out, "%d+%d ", list->segments.data[i].begin,
                list->segments.data[i].n);
  text_add(&out, "/");
  for (int i = 0; i < list->calls.n; i++) {
    const DnnCall *call = &list->calls.data[i];
    text_printf(&out, " %d", call->segment);
    if (list->segments.data[call->segment].n_registers > 0)
      text_printf(&out, "(%d%s)", call->registers[REGISTER_microbatch],
                  call->is_first ? ", first" : "");
  }
  return text_string(&out);
}

Test(build, micro_batches_are_calls_of_one_segment) {
  Selected selected = selected_create(
      "graph g mesh(data = 2, time = 3~) {\n"
      "  %0 = input {index = 0} : f32[B:12@(data, time), C:3] data \"d.x\"\n"
      "  %1 = input {index = 1} : i64[] seed \"\"\n"
      "  %2 = input {index = 2} : i32[] step \"\"\n"
      "  %3 = random_keep %1, %2 {to = [B, C], sizes = [12, 3], value = 0.5, "
      "stream = \"s\"} : bool[B:12@(data, time), C:3]\n"
      "  %4 = mul %0, %3 : f32[B:12@(data, time), C:3]\n"
      "  %5 = sum %4 {over = [B]} : f32[C:3; sum@(data, time)]\n"
      "  %6 = accumulate %5 {axes = [time], reduce = sum} : f32[C:3; "
      "sum@data]\n"
      "  %7 = all_reduce %6 {axes = [data], reduce = sum, bucket = 0} : "
      "f32[C:3]\n"
      "  output result \"y\" %7\n"
      "}\n");
  cr_assert_eq(select_into(&selected).code, STATUS_ok);
  cr_expect_str_eq(ops_of(&selected),
                   "zero kernel kernel kernel kernel collective wait");
  cr_expect_str_eq(calls_of(&selected),
                   "0+1 1+4 5+2 / 0 1(0, first) 1(1) 1(2) 2");
  /* Shard rank * 3 + micro-batch, of 2 rows each. */
  Launch *const *launches = selected.launches.data;
  const Launch *random = launches[1], *product = launches[2];
  cr_expect_eq(random->numbers.data[0], 0);
  cr_expect_eq(random->number_advances.data[0], 2);
  cr_expect(random->rank_offsets.data[0].group->size == 2 &&
            random->rank_offsets.data[0].factor == 6);
  /* The input moves on, everything else stays. */
  cr_expect_eq(product->n_loops, 1);
  cr_expect_eq(product->advances.data[0], 2 * 3 * 4);
  cr_expect_eq(product->advances.data[1], 0);
  cr_expect_eq(product->advances.data[2], 0);
}

/* A maximum begins with a copy of the first micro-batch. */
Test(build, what_differs_later_stands_twice) {
  Selected selected = selected_create(
      "graph g mesh(time = 3~) {\n"
      "  %0 = input {index = 0} : f32[B:6@time, C:3] data \"d.x\"\n"
      "  %1 = max %0 {over = [B]} : f32[C:3; max@time]\n"
      "  %2 = accumulate %1 {axes = [time], reduce = max} : f32[C:3]\n"
      "  output result \"y\" %2\n"
      "}\n");
  cr_assert_eq(select_into(&selected).code, STATUS_ok);
  cr_assert_str_eq(ops_of(&selected), "zero kernel copy kernel");
  static const DnnWhen want[] = {DNN_ALWAYS, DNN_ALWAYS, DNN_FIRST, DNN_LATER};
  for (int i = 0; i < ARRAY_LENGTH(want); i++)
    cr_expect_eq(selected.launches.data[i]->when, want[i], "launch %d", i);
}

/* Another rank's value is gathered before the micro-batches and first read in
 * them. */
Test(build, a_wait_for_what_came_before_is_for_the_first_call) {
  Selected selected = selected_create(
      "graph g mesh(data = 2, time = 3~) {\n"
      "  %0 = input {index = 0} : f32[B:12@(data, time), C:4] data \"d.x\"\n"
      "  %1 = input {index = 1} : f32[C:4@data] param \"w\"\n"
      "  %2 = all_gather %1 {dim = C, axes = [data], bucket = 0} : f32[C:4]\n"
      "  %3 = mul %0, %2 : f32[B:12@(data, time), C:4]\n"
      "  %4 = sum %3 {over = [B]} : f32[C:4; sum@(data, time)]\n"
      "  %5 = accumulate %4 {axes = [time], reduce = sum} : f32[C:4; "
      "sum@data]\n"
      "  output result \"y\" %5\n"
      "}\n");
  cr_assert_eq(select_into(&selected).code, STATUS_ok);
  cr_assert_str_eq(ops_of(&selected),
                   "collective zero wait kernel kernel kernel");
  cr_expect_eq(selected.launches.data[2]->when, DNN_FIRST);
  ProgramMessages messages;
  cr_assert_eq(codegen_messages(selected.module, selected.set->backend,
                                &selected.entry, &messages)
                   .code,
               STATUS_ok);
  cr_expect_null(messages.fault, "%s", messages.fault);
  cr_expect_eq(messages.list.n, 1);
}

static int64_t pace_of_test(void *user, const Graph *graph, int id,
                            bool is_clear) {
  int *n_asked = user;
  (void)graph;
  ++*n_asked;
  return is_clear ? 7 : 1000 + id;
}

/* A run is a copy and a kernel, or one launch.  What starts a collective is no
 * run. */
Test(build, runs_have_keys_and_paces) {
  Selected selected = selected_create(
      "graph g mesh(data = 2, time = 2~) {\n"
      "  %0 = input {index = 0} : f32[T:4, C:3] data \"x\"\n"
      "  %1 = input {index = 1} : f32[T:1, C:3] data \"row\"\n"
      "  %2 = input {index = 2} : i32[] data \"t\"\n"
      "  %3 = input {index = 3} : f32[B:8@(data, time), C:3] data \"b\"\n"
      "  %4 = update_slice %0, %1, %2 {dim = T} : f32[T:4, C:3]\n"
      "  %5 = add %4, %0 : f32[T:4, C:3]\n"
      "  %6 = sum %3 {over = [B]} : f32[C:3; sum@(data, time)]\n"
      "  %7 = accumulate %6 {axes = [time], reduce = sum} : f32[C:3; "
      "sum@data]\n"
      "  %8 = all_reduce %7 {axes = [data], reduce = sum, bucket = 0} : "
      "f32[C:3]\n"
      "  output result \"x\" %5\n"
      "  output result \"y\" %8\n"
      "}\n");
  int n_asked = 0;
  Pacer pacer = {pace_of_test, &n_asked};
  cr_assert_eq(select_entry_point(selected.set, &selected.entry, NULL, &pacer,
                                  &selected.launches)
                   .code,
               STATUS_ok);
  cr_assert_str_eq(ops_of(&selected),
                   "copy kernel kernel zero kernel kernel collective wait");
  static const struct {
    int n_launches, pace;
  } want[] = {{2, 1004}, {0, 0},    {1, 1005}, {1, 7},
              {1, 1006}, {1, 1007}, {0, 0},    {0, 0}};
  Launch *const *launches = selected.launches.data;
  for (int i = 0; i < selected.launches.n; i++) {
    cr_expect_eq(launches[i]->n_launches, want[i].n_launches, "launch %d", i);
    cr_expect_eq(launches[i]->pace, want[i].pace, "launch %d", i);
    cr_expect_eq(launches[i]->key != 0, want[i].n_launches > 0);
  }
  cr_expect_eq(n_asked, 5);
  cr_expect_eq(launches[0]->key, launch_key(selected.graph, 4));
  cr_expect_eq(launches[3]->key, clear_key(selected.graph, 7));
  cr_expect_eq(launches[4]->key, launch_key(selected.graph, 6));
}

/* ---- bundles ---- */

/* A runtime that prints one line for each tensor and runs the kernels.  A rank
 * takes its program by its own name. */
static const char stub[] =
    "#include <stdio.h>\n"
    "#include <stdlib.h>\n"
    "#include <string.h>\n"
    "#include \"program.h\"\n"
    "int rank_main(int argc, char **argv, const DnnBundle *bundle) {\n"
    "  int row = bundle->n_rows - 1;\n"
    "  int rank = atoi(argv[0] + strlen(argv[0]) - 4);\n"
    "  (void)argc;\n"
    "  while (bundle->rows[row].first > rank) row--;\n"
    "  const DnnProgram *p = &bundle->programs[bundle->rows[row].program];\n"
    "  printf(\"%s %s %d %ld %d\\n\", p->model, p->target, p->world,\n"
    "         (long)p->parameters, p->n_entry_points);\n"
    "  for (int i = 0; i < p->n_tensors; i++)\n"
    "    printf(\"%s %d %ld ranks %d+%d at %ld\\n\", p->tensors[i].path,\n"
    "           p->tensors[i].role, (long)p->tensors[i].size[0],\n"
    "           p->tensors[i].first, p->tensors[i].ranks,\n"
    "           (long)p->tensors[i].offset);\n"
    "  const DnnEntryPoint *entry_point = &p->entry_points[0];\n"
    "  char *arena = aligned_alloc(64, (size_t)p->arena_bytes);\n"
    "  for (long i = 0; i < p->arena_bytes / 4; i++)\n"
    "    ((float *)arena)[i] = 1;\n"
    "  for (int i = 0; i < entry_point->n_instrs; i++) {\n"
    "    const DnnInstr *in = &entry_point->instrs[i];\n"
    "    void *buffers[8];\n"
    "    for (int k = 0; k < in->n_buffers; k++)\n"
    "      buffers[k] = arena + in->buffers[k];\n"
    "    if (in->op == DNN_OP_KERNEL)\n"
    "      p->kernels[in->kernel].function(buffers, in->numbers);\n"
    "  }\n"
    "  const DnnTensor *loss = &entry_point->tensors[1];\n"
    "  printf(\"%s %g\\n\", loss->path, *(float *)(arena + loss->offset));\n"
    "  return 0;\n"
    "}\n";

typedef struct Site {
  Selected selected;
  Arena *arena;
  char folder[64];
  BuildOptions options;
  BuildReport report;
  Model model;
} Site;

static const char *below(Site *site, const char *name) {
  return arena_printf(site->arena, "%s/%s", site->folder, name);
}

static const char *text_of(Site *site, const char *path) {
  const char *bytes;
  size_t n;
  Status status = file_read(site->arena, path, 1 << 26, &bytes, &n);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  return bytes;
}

static void write_text(Site *site, const char *name, const char *text) {
  Status status = file_replace(below(site, name), text, strlen(text));
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
}

static void shell(Site *site, const char *command) {
  int code =
      system(arena_printf(site->arena, "cd %s && %s", site->folder, command));
  cr_assert_eq(code, 0, "%s", command);
}

static Site *site_create(void) {
  static Site site;
  site.selected = selected_create(linear);
  site.arena = site.selected.module->arena;
  strcpy(site.folder, "/tmp/dnnc-test-XXXXXX");
  cr_assert(mkdtemp(site.folder) != NULL);
  shell(&site, "awk -f " TEST_ROOT "/tools/expand-header.awk " TEST_ROOT
               "/support/model_facts.def " TEST_ROOT
               "/runtime/program_settings.h " TEST_ROOT
               "/runtime/program.h >program.h");
  write_text(&site, "runtime.c", stub);
  shell(&site, "cc -c runtime.c && ar rc runtime.a runtime.o");
  const char *archive;
  size_t n;
  file_read(site.arena, below(&site, "runtime.a"), 1 << 26, &archive, &n);
  site.model =
      (Model){.module = site.selected.module,
              .name = name_intern(site.selected.module->names, "linear"),
              .path = "linear.dnn"};
  site.options = (BuildOptions){.backend = backend_find("cpu"),
                                .out_dir = below(&site, "out"),
                                .cache_dir = below(&site, "cache"),
                                .cc = "/usr/bin/cc",
                                .jobs = 2,
                                .ranks = 2,
                                .keep_source = true,
                                .model_hash = "m",
                                .plan_hash = "p",
                                .program_header =
                                    text_of(&site, below(&site, "program.h")),
                                .runtime_archive = archive,
                                .runtime_bytes = n};
  return &site;
}

static Status build_site(Site *site) {
  RankProgram program = {.n_entry_points = 1,
                         .entry_points = {site->selected.entry},
                         .persistent = site->selected.persistent};
  RankPrograms programs = rank_programs_of_one(site->arena, &program);
  site->report = (BuildReport){0};
  return codegen_build(site->selected.module, &site->model, &programs,
                       &site->options, &site->report);
}

static void site_destroy(Site *site) {
  shell(site, "rm -rf out cache program.h runtime.* log wrong");
  cr_expect_eq(rmdir(site->folder), 0, "something was left behind");
}

Test(build, a_bundle_runs) {
  Site *site = site_create();
  Status status = build_site(site);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  shell(site, "out/rank-0001 >log");
  /* 40 ones plus 40 ones from the bias: the matmul is not run here. */
  cr_expect_str_eq(text_of(site, below(site, "log")),
                   "linear cpu 2 35 1\nw 0 6 ranks 0+2 at 0\n"
                   "b 0 5 ranks 0+2 at 128\nloss 80\n");
  struct stat a, b;
  cr_assert_eq(stat(below(site, "out/rank-0000"), &a), 0);
  cr_assert_eq(stat(below(site, "out/rank-0001"), &b), 0);
  cr_expect_eq(a.st_ino, b.st_ino, "equal ranks are one file");
  site_destroy(site);
}

/* Rank 1 runs a program whose parameter `c` rank 0 does not have. */
Test(build, ranks_of_a_bundle_run_programs_of_their_own) {
  Site *site = site_create();
  const PersistentBuffers *of_first = &site->selected.persistent;
  RankProgram first = {.n_entry_points = 1,
                       .entry_points = {site->selected.entry},
                       .persistent = *of_first},
              second = first;
  PersistentBuffer own = of_first->buffers.data[1];
  own.path = name_intern(site->selected.module->names, "c");
  Map *by_path = map_create(site->arena);
  map_put(by_path, own.path, (void *)1);
  second.persistent.buffers.data = &own;
  second.persistent.buffers.n = 1;
  second.persistent.by_path[ROLE_param] = by_path;
  ProgramStage stage = *entry_point_stage(&second.entry_points[0]);
  stage.first_rank = 1;
  second.entry_points[0].stages.data = &stage;
  const RankProgram *const programs[] = {&first, &second};
  const DnnRankRow rows[] = {{0, 0}, {1, 1}};
  const RankPrograms ranks = {programs, 2, rows, 2};
  Status status = codegen_build(site->selected.module, &site->model, &ranks,
                                &site->options, &site->report);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  shell(site, "out/rank-0000 >log && out/rank-0001 >>log");
  cr_expect_str_eq(text_of(site, below(site, "log")),
                   "linear cpu 2 40 1\nw 0 6 ranks 0+1 at 0\n"
                   "b 0 5 ranks 0+1 at 128\nc 0 5 ranks 1+1 at -1\nloss 80\n"
                   "linear cpu 2 40 1\nw 0 6 ranks 0+1 at -1\n"
                   "b 0 5 ranks 0+1 at -1\nc 0 5 ranks 1+1 at 128\n"
                   "loss 80\n");
  cr_expect_eq(site->report.kernels, 2, "both programs have the same kernels");
  site_destroy(site);
}

Test(build, the_second_time_comes_from_the_cache) {
  Site *site = site_create();
  cr_assert_eq(build_site(site).code, STATUS_ok);
  cr_expect_eq(site->report.cached, 0);
  const char *first = text_of(site, below(site, "out/source/program.c"));
  const char *manifest = text_of(site, below(site, "out/bundle.json"));
  shell(site, "cp out/source/tables.bin .");
  cr_assert_eq(build_site(site).code, STATUS_ok);
  cr_expect_eq(site->report.cached, site->report.files);
  cr_expect_str_eq(text_of(site, below(site, "out/source/program.c")), first);
  shell(site, "cmp out/source/tables.bin tables.bin && rm tables.bin");
  cr_expect_str_eq(text_of(site, below(site, "out/bundle.json")), manifest);
  site_destroy(site);
}

Test(build, damaged_objects_are_made_again) {
  Site *site = site_create();
  cr_assert_eq(build_site(site).code, STATUS_ok);
  shell(site, "for f in cache/*/*; do truncate -s -1 $f; done");
  cr_assert_eq(build_site(site).code, STATUS_ok);
  cr_expect_eq(site->report.cached, 0);
  shell(site, "out/rank-0000 >log");
  site_destroy(site);
}

Test(build, a_cache_that_others_may_write_is_not_used) {
  Site *site = site_create();
  shell(site, "mkdir cache && chmod 777 cache");
  cr_assert_eq(build_site(site).code, STATUS_ok);
  cr_assert_eq(build_site(site).code, STATUS_ok);
  cr_expect_eq(site->report.cached, 0);
  site_destroy(site);
}

Test(build, a_folder_that_is_no_bundle_is_left_alone) {
  Site *site = site_create();
  shell(site, "mkdir out && echo mine >out/bundle.json");
  Status status = build_site(site);
  cr_expect_eq(status.code, STATUS_invalid);
  cr_expect(strstr(status.message, "is not a bundle") != NULL, "%s",
            status.message);
  codegen_remove_bundle(site->arena, site->options.out_dir);
  cr_expect_str_eq(text_of(site, below(site, "out/bundle.json")), "mine\n");
  site_destroy(site);
}

Test(build, errors_of_the_compiler_are_shown) {
  Site *site = site_create();
  Backend broken = *site->options.backend;
  broken.prelude = "#error this text is wrong\n";
  site->options.backend = &broken;
  Status status = build_site(site);
  cr_expect_eq(status.code, STATUS_unavailable);
  cr_expect(strstr(status.message, "this text is wrong") != NULL, "%s",
            status.message);
  site->options.cc = "/nowhere/cc";
  status = build_site(site);
  cr_assert_neq(status.code, STATUS_ok);
  cr_expect(strstr(status.message, "/nowhere/cc") != NULL, "%s",
            status.message);
  site_destroy(site);
}

Test(build, every_back_end_is_found) {
  cr_expect(backend_find("cpu") && backend_find("cuda") &&
            backend_find("null"));
  cr_expect_null(backend_find("abacus"));
}

/* The result of a value of --target: a back end and architectures, or a
 * message.
 */
static void check_target(const char *text, const char *back_end, int n_archs,
                         const char *message) {
  Module *module = module_create();
  BuildTarget target;
  Status status = backend_read_target(module->arena, text, &target);
  if (message) {
    cr_expect_eq(status.code, STATUS_invalid, "%s", text);
    cr_expect_str_eq(status.message, message);
    return;
  }
  cr_expect_eq(status.code, STATUS_ok, "%s", status.message);
  cr_expect_str_eq(target.backend->name, back_end);
  cr_expect_eq(target.n_archs, n_archs);
}

Test(build, targets_are_read_from_the_rows) {
  check_target(NULL, "cpu", 0, NULL);
  check_target("null", "null", 0, NULL);
  check_target("cuda", "cuda", 0, NULL);
  check_target("cuda:sm_90,sm_80", "cuda", 2, NULL);
  check_target("tpu", NULL, 0, "no target 'tpu'; there are cpu and cuda");
  check_target("cpu:sm_80", NULL, 0,
               "target 'cpu' has no architectures to choose from: leave out "
               "':sm_80'");
  check_target("cuda:sm_12", NULL, 0,
               "target 'cuda' has no architecture 'sm_12'; there are sm_80, "
               "sm_90, sm_90a and sm_100");
  Module *module = module_create();
  cr_expect_str_eq(backend_target_help(module->arena),
                   "cpu (default), cuda or cuda:sm_80,sm_90,sm_90a,sm_100");
}

/* The skeleton declares what the others do, so that a copy is complete. */
Test(build, every_back_end_has_a_device_and_a_target) {
  static const char *const names[] = {
#define BACKEND(name) #name,
#include "codegen/backends.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    const Backend *backend = backend_find(names[i]);
    cr_assert(backend != NULL, "%s", names[i]);
    cr_expect_str_eq(backend->target.name, names[i]);
    cr_expect(backend->device && backend->prelude && backend->emit_nest &&
                  backend->compile && backend->target.has_kernel,
              "%s", names[i]);
  }
}

Test(build, the_null_back_end_builds) {
  Site *site = site_create();
  site->options.backend = backend_find("null");
  Status status = build_site(site);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  shell(site, "out/rank-0000 | grep -q '^loss 1$'");
  site_destroy(site);
}
