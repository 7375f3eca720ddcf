/*
 * pictures.c -- lists the pictures of a source and their classes.
 *
 * A folder of folders has a class for each of these; a list is a text file with
 * a picture in each line and, after a tab, a comma or spaces, its class.  Both
 * give records in one order on every machine: names are sorted by their bytes,
 * lists are read in order.  A label is the place of a class among all classes
 * of the training data, sorted; integers of a list are labels themselves.
 */
#include "runtime/data/pictures.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MOST_LIST = 1 << 30, SHOWN = 60 };

typedef VEC(const char *) Words;

static bool ends_with(const char *text, size_t n, const char *const *endings) {
  for (int i = 0; endings[i]; i++) {
    size_t m = strlen(endings[i]);
    if (n > m && strncasecmp(text + n - m, endings[i], m) == 0) return true;
  }
  return false;
}

static bool is_picture(const char *name, size_t n) {
  static const char *const endings[] = {".jpg", ".jpeg", ".png", NULL};
  return ends_with(name, n, endings);
}

/* Files that would be left out although they are pictures. */
static Status check_known(const char *folder, const char *name) {
  static const char *const others[] = {".gif", ".webp", ".bmp",  ".tif",
                                       ".ppm", ".tiff", ".avif", NULL};
  if (!ends_with(name, strlen(name), others)) return STATUS_OK;
  return status_make(STATUS_unavailable,
                     "'%s/%s' is not supported yet: pictures are JPEG or PNG",
                     folder, name);
}

static Status add_picture(Arena *arena, PictureList *list, Picture picture) {
  if (list->n == list->room) {
    int64_t room = list->room ? 2 * list->room : 64;
    Picture *items = ARENA_ARRAY(arena, Picture, room);
    if (list->n > 0)
      memcpy(items, list->items, sizeof *items * (size_t)list->n);
    list->items = items;
    list->room = room;
  }
  list->items[list->n++] = picture;
  return STATUS_OK;
}

/* ---- folders ---- */

static int by_bytes(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The names in a folder: folders and pictures, each sorted. */
static Status read_folder(Arena *arena, const char *path, Words *folders,
                          Words *pictures) {
  DIR *dir = opendir(path);
  if (!dir) return status_errno(errno, "cannot read folder '%s'", path);
  Status status = STATUS_OK;
  for (struct dirent *entry = readdir(dir); entry && status.code == STATUS_ok;
       entry = readdir(dir)) {
    const char *name = entry->d_name;
    if (name[0] == '.') continue;
    bool is_unknown = entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK;
    if (entry->d_type == DT_DIR ||
        (is_unknown && is_folder(arena_printf(arena, "%s/%s", path, name))))
      vec_push(arena, folders, arena_printf(arena, "%s", name));
    else if (is_picture(name, strlen(name)))
      vec_push(arena, pictures, arena_printf(arena, "%s", name));
    else
      status = check_known(path, name);
  }
  closedir(dir);
  if (folders->n > 0)
    qsort(folders->data, (size_t)folders->n, sizeof *folders->data, by_bytes);
  if (pictures->n > 0)
    qsort(pictures->data, (size_t)pictures->n, sizeof *pictures->data,
          by_bytes);
  return status;
}

static Status list_class(Arena *arena, const char *path, const char *word,
                         PictureList *out) {
  Words folders = {0}, pictures = {0};
  const char *folder = word ? arena_printf(arena, "%s/%s", path, word) : path;
  TRY(read_folder(arena, folder, &folders, &pictures));
  for (int i = 0; i < pictures.n; i++)
    TRY(add_picture(arena, out, (Picture){folder, pictures.data[i], word}));
  if (pictures.n > 0) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "folder '%s' has no picture (.jpg, .jpeg, .png)", folder);
}

static Status list_folder(Arena *arena, const char *path, PictureList *out) {
  Words classes = {0}, pictures = {0};
  TRY(input_check_links(path, &out->search));
  TRY(read_folder(arena, path, &classes, &pictures));
  if (classes.n > 0 && pictures.n > 0)
    return status_make(STATUS_invalid,
                       "folder '%s' has pictures, as '%s', beside the folders "
                       "of classes, as '%s'",
                       path, pictures.data[0], classes.data[0]);
  out->has_numbers = false;
  if (classes.n == 0) return list_class(arena, path, NULL, out);
  for (int i = 0; i < classes.n; i++)
    TRY(list_class(arena, path, classes.data[i], out));
  return STATUS_OK;
}

/* ---- lists ---- */

static bool is_number(const char *word) {
  size_t n = strspn(word, "0123456789");
  return n > 0 && n < 16 && word[n] == '\0';
}

/* Ends `line` after the name of the picture; returns the class, or NULL. */
static char *split_line(char *line) {
  size_t n = strlen(line);
  while (n > 0 && isspace((unsigned char)line[n - 1])) line[--n] = '\0';
  if (n == 0 || is_picture(line, n)) return NULL;
  const char *separators = strchr(line, '\t')  ? "\t"
                           : strchr(line, ',') ? ","
                                               : " ";
  char *at = strrchr(line, separators[0]);
  if (!at) return NULL;
  char *word = at + 1;
  while (*word == ' ') word++;
  while (at > line && strchr(" ,\t", at[-1])) at--;
  *at = '\0';
  return *word ? word : NULL;
}

static Status add_line(Arena *arena, const InputFile *file, const char *folder,
                       char *line, int64_t number, PictureList *out) {
  if (line[strspn(line, " \t\r")] == '\0') return STATUS_OK;
  char *word = split_line(line);
  if (!is_picture(line, strlen(line)))
    return status_make(STATUS_invalid,
                       "'%s', line %lld: '%.*s' is no picture (.jpg, .jpeg, "
                       ".png), followed by a class or by nothing",
                       file->path, (long long)number, SHOWN, line);
  out->has_numbers = out->has_numbers && word && is_number(word);
  return add_picture(arena, out,
                     (Picture){line[0] == '/' ? "" : folder, line, word});
}

/* The paths of a list begin in its folder. */
static Status list_file(Arena *arena, const char *name, PictureList *out) {
  InputFile file;
  TRY(input_open(arena, name, &out->search, NULL, &file));
  Status status = STATUS_OK;
  if (file.n > MOST_LIST)
    status =
        status_make(STATUS_invalid, "'%s' is too long for a list", file.path);
  char *text = NULL;
  if (status.code == STATUS_ok) {
    text = arena_alloc(arena, (size_t)file.n + 1);
    status = input_read(&file, 0, text, file.n);
  }
  const char *slash = strrchr(file.path, '/');
  const char *folder =
      slash ? arena_printf(arena, "%.*s", (int)(slash - file.path), file.path)
            : ".";
  int64_t n = 0;
  for (char *line = text; line && status.code == STATUS_ok;) {
    char *end = strchr(line, '\n');
    if (end) *end = '\0';
    status = add_line(arena, &file, folder, line, ++n, out);
    line = end ? end + 1 : NULL;
  }
  input_close(&file);
  return status;
}

/* ---- all ---- */

static Status list_one(Arena *arena, const char *name, PictureList *out) {
  const char *path =
      input_locate(arena, name, out->search.folder, out->search.model_dir);
  if (path && is_folder(path)) return list_folder(arena, path, out);
  if (!path || !is_picture(name, strlen(name)))
    return list_file(arena, name, out);
  out->has_numbers = false;
  const char *slash = strrchr(path, '/');
  const char *folder =
      slash ? arena_printf(arena, "%.*s", (int)(slash - path), path) : ".";
  return add_picture(arena, out,
                     (Picture){folder, slash ? slash + 1 : path, NULL});
}

Status pictures_list(Arena *arena, const char *const *names, int n,
                     const InputSearch *search, PictureList *out) {
  const char *const *files;
  int n_files;
  *out = (PictureList){.search = *search, .has_numbers = true};
  TRY(input_expand(arena, names, n, search, &files, &n_files));
  for (int i = 0; i < n_files; i++) TRY(list_one(arena, files[i], out));
  if (out->n > 0) return STATUS_OK;
  return status_make(STATUS_invalid, "'%s' lists no picture", names[0]);
}

Status pictures_open(Arena *arena, const DnnField *field,
                     const char *const *names, int n, const InputSearch *search,
                     int64_t items, Reader *out) {
  PictureList *list = ARENA_NEW(arena, PictureList);
  *out = (Reader){.kind = field->source, .file.fd = -1};
  TRY(pictures_list(arena, names, n, search, list));
  out->pictures = list;
  out->record_items = items;
  out->n = list->n * items;
  return STATUS_OK;
}

/* ---- labels ---- */

/* The classes in the order of their labels. */
static Status list_classes(Arena *arena, const DnnField *field,
                           const InputSearch *search, Words *out) {
  PictureList all;
  for (int i = 0; i < field->n_classes; i++)
    vec_push(arena, out, field->classes[i]);
  if (field->n_classes) return STATUS_OK;
  TRY(pictures_list(arena, field->files, field->n_files, search, &all));
  for (int64_t i = 0; i < all.n; i++)
    if (all.items[i].word &&
        (out->n == 0 || strcmp(out->data[out->n - 1], all.items[i].word) != 0))
      vec_push(arena, out, all.items[i].word);
  if (out->n == 0) return STATUS_OK;
  qsort(out->data, (size_t)out->n, sizeof *out->data, by_bytes);
  int n = 1;
  for (int i = 1; i < out->n; i++)
    if (strcmp(out->data[i], out->data[n - 1]) != 0)
      out->data[n++] = out->data[i];
  out->n = n;
  return STATUS_OK;
}

static int find_class(const Words *classes, bool is_sorted, const char *word) {
  if (is_sorted) {
    const char **found = bsearch(&word, classes->data, (size_t)classes->n,
                                 sizeof *classes->data, by_bytes);
    return found ? (int)(found - classes->data) : -1;
  }
  for (int i = 0; i < classes->n; i++)
    if (strcmp(classes->data[i], word) == 0) return i;
  return -1;
}

static Status label_of(const DnnField *field, const Words *classes,
                       const PictureList *list, int64_t i, double *out) {
  const Picture *picture = &list->items[i];
  if (!picture->word)
    return status_make(STATUS_invalid,
                       "'%s/%s' has no class: '%s' needs a folder of folders, "
                       "or a list with a class in each line",
                       picture->folder, picture->name, field->path);
  if (list->has_numbers && !field->n_classes) {
    *out = strtod(picture->word, NULL);
    return STATUS_OK;
  }
  int found =
      classes->n ? find_class(classes, !field->n_classes, picture->word) : -1;
  *out = found;
  if (found >= 0) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s/%s': '%.*s' is none of the %d classes of '%s'",
                     picture->folder, picture->name, SHOWN, picture->word,
                     classes->n, field->path);
}

Status labels_open(Arena *arena, const DnnField *field,
                   const char *const *names, int n, const InputSearch *search,
                   Reader *out) {
  PictureList list;
  Words classes = {0};
  *out = (Reader){.kind = field->source, .file.fd = -1};
  TRY(pictures_list(arena, names, n, search, &list));
  if (!list.has_numbers || field->n_classes)
    TRY(list_classes(arena, field, search, &classes));
  out->numbers = malloc(sizeof(double) * (size_t)list.n);
  if (!out->numbers)
    return status_make(STATUS_io, "no memory for the labels of '%s'",
                       field->path);
  for (int64_t i = 0; i < list.n; i++)
    TRY(label_of(field, &classes, &list, i, &out->numbers[i]));
  out->n = list.n;
  out->record_items = 1;
  return STATUS_OK;
}
