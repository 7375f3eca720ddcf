/*
 * command_convert.c -- implements `dnnc convert`, which writes a checkpoint
 * under other names and layouts, as a mapping file says.
 *
 * The new files are written into a folder of their own in the output folder and
 * renamed from there one by one, the index last.
 */
#include "convert/convert.h"
#include "tools/commands/tools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the map ---- */

TensorMap *tool_read_map(Tool *tool, const char *path) {
  Source *source = ARENA_NEW(tool->arena, Source);
  source->path = path;
  Status status =
      file_read(tool->arena, path, 16 << 20, &source->text, &source->n);
  if (status.code != STATUS_ok) {
    tool_fail(status);
    return NULL;
  }
  TensorMap *map = tensormap_parse(&tool->module, source);
  return tool_report(tool) ? NULL : map;
}

/* NAME=VALUE of the command line. */
static bool replace_dim(Tool *tool, TensorMap *map, const Override *override) {
  const char *names[64];
  int n = map->dims.n < 64 ? map->dims.n : 64;
  for (int i = 0; i < n; i++) names[i] = map->dims.data[i].name;
  double value;
  if (!text_read_real(override->value, strlen(override->value), &value) ||
      value < 1 || value > 1e15 || value != (double)(int64_t)value) {
    message_print("dnnc: error: the size of dimension '%s' is '%s'; it must be "
                  "an integer above 0\n",
                  override->name, override->value);
    return false;
  }
  for (int i = 0; i < map->dims.n; i++) {
    if (strcmp(map->dims.data[i].name, override->name) != 0) continue;
    map->dims.data[i].size = (int64_t)value;
    return true;
  }
  /* A dim whose size the map left to the tensors. */
  MapDim dim = {.name = name_intern(tool->module.names, override->name),
                .size = (int64_t)value};
  for (int r = 0; r < map->rules.n; r++)
    for (int s = 0; s < 2; s++)
      for (int i = 0; i < map->rules.data[r].side[s].n; i++)
        if (tensormap_has_dim(&map->rules.data[r].side[s].terms[i], dim.name)) {
          vec_push(tool->arena, &map->dims, dim);
          return true;
        }
  const char *nearest = text_nearest(override->name, names, n);
  message_print("dnnc: error: the map has no dimension '%s'\n", override->name);
  if (nearest) message_print("help: did you mean '%s'?\n", nearest);
  return false;
}

/* ---- hashes ---- */

/* All that is read was written so; what has no hash is said. */
static Status check_hashes(Tool *tool, const Checkpoint *from) {
  unsigned char *piece = ARENA_ARRAY(tool->arena, unsigned char, HASH_BLOCK);
  int n_unhashed = 0;
  for (int i = 0; i < from->n_places; i++) {
    bool has_hash;
    TRY(checkpoint_check_hash(from, from->places[i].file,
                              from->places[i].tensor, piece, &has_hash));
    n_unhashed += !has_hash;
  }
  if (n_unhashed > 0 && !tool->options.quiet)
    message_print(
        "note: '%s' has no hashes of %d tensors: damaged values would not "
        "be seen\n",
        from->given, n_unhashed);
  return STATUS_OK;
}

/* ---- writing ---- */

typedef struct Output {
  const char *path, *temporary; /* names; the second is inside the first */
  int folder, inner, lock;      /* descriptors */
  const TensorFiles *files;
} Output;

/* Removes the folder that a killed conversion has left here. */
static void remove_abandoned(void *user, const char *path, const char *name) {
  (void)user;
  if (strncmp(name, ".unfinished-", 12) != 0) return;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
  if (!list) return;
  for (struct dirent *entry; (entry = readdir(list));)
    if (is_plain_file_name(entry->d_name)) unlinkat(fd, entry->d_name, 0);
  closedir(list);
  rmdir(path);
}

static Status open_output(Tool *tool, Output *out) {
  TRY(file_make_dirs(out->path));
  out->folder = open(out->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (out->folder < 0)
    return status_errno(errno, "cannot open folder '%s'", out->path);
  folder_each_abandoned(tool->arena, out->path, remove_abandoned, NULL);
  const char *inner;
  TRY(folder_create_unfinished(tool->arena,
                               arena_printf(tool->arena, "%s/", out->path),
                               &inner, &out->lock));
  out->temporary = strrchr(inner, '/') + 1;
  out->inner = openat(out->folder, out->temporary,
                      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (out->inner < 0)
    return status_errno(errno, "cannot open folder '%s'", inner);
  return STATUS_OK;
}

static Status move_out(const Output *out, const char *name) {
  if (renameat(out->inner, name, out->folder, name) == 0) return STATUS_OK;
  return status_errno(errno, "cannot put '%s/%s' in place", out->path, name);
}

/* A reader looks for the index first: it comes last where there is one, and an
 * old one goes last where there is none. */
static Status move_all(const Output *out) {
  char name[TENSOR_FILE_NAME];
  bool has_index = faccessat(out->inner, TENSOR_INDEX_NAME, F_OK, 0) == 0;
  for (int i = 1; i <= tensor_files_count(out->files); i++) {
    tensor_files_name(out->files, i, name);
    TRY(move_out(out, name));
  }
  if (fsync(out->folder) != 0) return status_errno(errno, "cannot sync");
  if (has_index)
    TRY(move_out(out, TENSOR_INDEX_NAME));
  else if (unlinkat(out->folder, TENSOR_INDEX_NAME, 0) != 0 && errno != ENOENT)
    return status_errno(errno, "cannot remove the old index in '%s'",
                        out->path);
  if (fsync(out->folder) != 0) return status_errno(errno, "cannot sync");
  return STATUS_OK;
}

static void close_output(Output *out) {
  char name[TENSOR_FILE_NAME];
  for (int i = 1; out->inner >= 0 && i <= tensor_files_count(out->files); i++) {
    tensor_files_name(out->files, i, name);
    unlinkat(out->inner, name, 0);
  }
  if (out->inner >= 0) {
    unlinkat(out->inner, TENSOR_INDEX_NAME, 0);
    close(out->inner);
  }
  if (out->temporary) unlinkat(out->folder, out->temporary, AT_REMOVEDIR);
  if (out->lock >= 0) close(out->lock);
}

/* "pt" is what the field's readers ask for. */
static Status write_output(Tool *tool, const Conversion *conversion,
                           int64_t file_bytes) {
  static const StoredText metadata[] = {{"format", "pt"},
                                        {"converted_by", "dnnc"}};
  TensorFiles *files =
      tensor_files_create(tool->arena, conversion->tensors.data,
                          conversion->tensors.n, file_bytes, true);
  Mover mover = {.conversion = conversion,
                 .current = -1,
                 .values = value_report_create(tool->arena)};
  Output output = {.path = tool->options.output,
                   .folder = -1,
                   .inner = -1,
                   .lock = -1,
                   .files = files};
  Status status = open_output(tool, &output);
  if (status.code == STATUS_ok)
    status =
        tensor_files_write(files, output.inner, metadata,
                           ARRAY_LENGTH(metadata), NULL, mover_read, &mover);
  if (status.code == STATUS_ok) status = move_all(&output);
  value_report_print(&mover.values, conversion->from->given);
  mover_close(&mover);
  close_output(&output);
  if (output.folder < 0) return status;
  status = tensor_files_missing_room(files, output.folder, metadata,
                                     ARRAY_LENGTH(metadata), NULL, status);
  close(output.folder);
  return status;
}

/* ---- the command ---- */

static int convert(Tool *tool, const TensorMap *map, const Checkpoint *from,
                   int64_t file_bytes) {
  Conversion conversion = {.module = &tool->module,
                           .map = map,
                           .from = from,
                           .side = tool->options.reverse,
                           .takes_raw = tool->options.raw};
  conversion_make(&conversion);
  bool has_mistake = tool_report(tool);
  message_print_list(text_string(&conversion.misfits));
  if (conversion.n_misfits > 0)
    message_print("dnnc: error: '%s' does not fit the map '%s': %d tensor%s\n",
                  from->given, tool->options.map, conversion.n_misfits,
                  conversion.n_misfits == 1 ? "" : "s");
  if (has_mistake || conversion.n_misfits > 0) return EXIT_user;
  if (conversion.n_averages > 0 && !tool->options.quiet)
    message_print("note: of %d tensor%s of '%s' the moving average%s "
                  "converted, which 'dnnc eval' uses; --raw takes the "
                  "parameters themselves\n",
                  conversion.n_averages, conversion.n_averages == 1 ? "" : "s",
                  from->given, conversion.n_averages == 1 ? " is" : "s are");
  Status status = check_hashes(tool, from);
  if (status.code == STATUS_ok)
    status = write_output(tool, &conversion, file_bytes);
  if (status.code != STATUS_ok) return tool_fail(status);
  if (!tool->options.quiet)
    message_print("%s: %d tensors from %d\n", tool->options.output,
                  conversion.tensors.n, from->n_places);
  return EXIT_done;
}

static bool has_arguments(const Options *options) {
  if (options->map && options->output) return true;
  message_print("dnnc: error: 'dnnc convert' needs %s\n",
                options->map
                    ? "-o DIR, the folder to write"
                    : "--map FILE, which says what each tensor becomes");
  return false;
}

int command_convert(Tool *tool) {
  const Options *options = &tool->options;
  int64_t file_bytes =
      options->file_size > 0 ? options->file_size : TENSOR_FILE_BYTES;
  if (!has_arguments(options)) return EXIT_user;
  TensorMap *map = tool_read_map(tool, options->map);
  if (!map) return EXIT_user;
  for (int i = 0; i < options->overrides.n; i++)
    if (!replace_dim(tool, map, &options->overrides.data[i])) return EXIT_user;
  Checkpoint from;
  Status status = checkpoint_open_newest(tool->arena, options->subject, &from);
  if (status.code != STATUS_ok) return tool_fail(status);
  int code = convert(tool, map, &from, file_bytes);
  checkpoint_close(&from);
  return code;
}
