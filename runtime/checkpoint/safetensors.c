/*
 * safetensors.c -- reads the JSON header of a safetensors file and the index of
 * several such files.
 *
 * A checkpoint may come from anywhere.  General JSON readers are lenient (two
 * values for one key, text after the end, integers beyond 2^53 rounded), so
 * this one reads exactly the grammar of the format.  It reads the text twice:
 * first to check and count, then to store.
 */
#include "runtime/checkpoint/checkpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_NAME = 4096, SHOWN = 100 };

typedef struct Json {
  const char *at, *end, *begin;
  const char *what;   /* what its messages begin with */
  const char *tensor; /* the one that is read, or NULL */
  bool failed;
  Status status; /* why, once it failed */
} Json;

static Json json_begin(const char *text, size_t n, const char *what) {
  return (Json){.at = text, .end = text + n, .begin = text, .what = what};
}

/* ---- tokens ---- */

/* The first reason counts.  Nothing is read after it. */
PRINTF_LIKE(2, 3)
static void json_fail(Json *json, const char *format, ...) {
  char why[300];
  if (json->failed) return;
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  json->failed = true;
  json->status = json->tensor
                     ? status_make(STATUS_invalid, "tensor '%.*s': %s", SHOWN,
                                   json->tensor, why)
                     : status_make(STATUS_invalid, "%s%s", json->what, why);
  json->at = json->end;
}

/* The text is not the JSON that the format has. */
static void json_fail_here(Json *json, const char *wanted) {
  long long at = json->at - json->begin;
  if (json->at >= json->end)
    json_fail(json, "the text ends at byte %lld, where %s must stand", at,
              wanted);
  else if (*json->at > 0x20 && *json->at < 0x7f)
    json_fail(json, "byte %lld of the text is '%c', where %s must stand", at,
              *json->at, wanted);
  else
    json_fail(json, "byte %lld of the text is 0x%02x, where %s must stand", at,
              (unsigned char)*json->at, wanted);
}

static char json_peek(Json *json) {
  while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' ||
                                  *json->at == '\t' || *json->at == '\r'))
    json->at++;
  return json->at < json->end ? *json->at : '\0';
}

static bool json_accept(Json *json, char c) {
  if (json_peek(json) != c || json->at == json->end) return false;
  json->at++;
  return true;
}

static void json_expect(Json *json, char c) {
  char wanted[4] = {'\'', c, '\''};
  if (!json_accept(json, c)) json_fail_here(json, wanted);
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static unsigned read_hex4(Json *json) {
  unsigned value = 0;
  for (int i = 0; i < 4; i++) {
    int digit = json->at < json->end ? hex_digit(*json->at) : -1;
    if (digit < 0) {
      json_fail_here(json, "a hexadecimal digit");
      return 0;
    }
    value = value << 4 | (unsigned)digit;
    json->at++;
  }
  return value;
}

static int put_utf8(unsigned code, char *to) {
  if (code < 0x80) {
    to[0] = (char)code;
    return 1;
  }
  if (code < 0x800) {
    to[0] = (char)(0xc0 | code >> 6);
    to[1] = (char)(0x80 | (code & 63));
    return 2;
  }
  if (code < 0x10000) {
    to[0] = (char)(0xe0 | code >> 12);
    to[1] = (char)(0x80 | (code >> 6 & 63));
    to[2] = (char)(0x80 | (code & 63));
    return 3;
  }
  to[0] = (char)(0xf0 | code >> 18);
  to[1] = (char)(0x80 | (code >> 12 & 63));
  to[2] = (char)(0x80 | (code >> 6 & 63));
  to[3] = (char)(0x80 | (code & 63));
  return 4;
}

/* After the backslash. NUL would cut a name short, so it is refused. */
static int read_escape(Json *json, char *to) {
  char c = json->at < json->end ? *json->at++ : '\0';
  static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  const char *found = c ? strchr(letters, c) : NULL;
  if (found) {
    to[0] = values[found - letters];
    return 1;
  }
  if (c != 'u') {
    json_fail(json, "a string has an unknown escape");
    return 0;
  }
  unsigned code = read_hex4(json);
  if (code >= 0xd800 && code < 0xdc00) {
    if (json->end - json->at < 6 || json->at[0] != '\\' || json->at[1] != 'u') {
      json_fail(json, "a string has half of a surrogate pair");
      return 0;
    }
    json->at += 2;
    unsigned low = read_hex4(json);
    if (low < 0xdc00 || low > 0xdfff)
      json_fail(json, "a string has half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code == 0) {
    json_fail(json, "a string has the character NUL");
  } else if (code >= 0xdc00 && code < 0xe000) {
    json_fail(json, "a string has half of a surrogate pair");
  }
  return json->failed ? 0 : put_utf8(code, to);
}

static bool is_utf8(const char *text, size_t n) {
  for (size_t i = 0; i < n;) {
    int length = text_utf8_length(text + i);
    if (length == 0) return false;
    i += (size_t)length;
  }
  return true;
}

/* Decoded into `to`; longer than MAX_NAME fails.  Result: length. */
static size_t read_string(Json *json, char to[MAX_NAME + 1]) {
  size_t n = 0;
  json_expect(json, '"');
  long long begin = json->at - json->begin;
  while (!json->failed) {
    if (n + 4 > MAX_NAME)
      json_fail(json, "the string at byte %lld has more than %d bytes", begin,
                MAX_NAME - 4);
    else if (json->at == json->end || (unsigned char)*json->at < 0x20)
      json_fail_here(json, "the end of a string");
    if (json->failed) break;
    char c = *json->at++;
    if (c == '"') break;
    if (c == '\\')
      n += (size_t)read_escape(json, to + n);
    else
      to[n++] = c;
  }
  to[n] = '\0';
  if (!json->failed && !is_utf8(to, n))
    json_fail(json, "the string at byte %lld is not UTF-8", begin);
  return n;
}

/* 0 or more, below 2^62, no sign, point or exponent. */
static int64_t read_integer(Json *json) {
  int64_t value = 0;
  if (json_peek(json) < '0' || json_peek(json) > '9')
    json_fail_here(json, "an integer that is not negative");
  bool starts_with_zero = !json->failed && *json->at == '0';
  const char *begin = json->at;
  while (json->at < json->end && *json->at >= '0' && *json->at <= '9') {
    if (value > (INT64_C(1) << 62) / 10 - 1)
      json_fail(json, "the number at byte %lld is too large",
                (long long)(begin - json->begin));
    if (json->failed) return 0;
    value = value * 10 + (*json->at++ - '0');
  }
  if (starts_with_zero && json->at - begin > 1)
    json_fail(json, "the number at byte %lld begins with 0",
              (long long)(begin - json->begin));
  if (json->at < json->end && strchr(".eE+-", *json->at) && *json->at)
    json_fail_here(json, "the end of an integer");
  return value;
}

/* The next key of an object, from its brace on; false: it ended or is wrong. */
static bool next_key(Json *json, bool *is_first, char key[MAX_NAME + 1]) {
  if (*is_first) json_expect(json, '{');
  if (json->failed || json_accept(json, '}')) return false;
  if (!*is_first) json_expect(json, ',');
  *is_first = false;
  read_string(json, key);
  json_expect(json, ':');
  return !json->failed;
}

/* Any value, where the format allows what we do not read. */
static void skip_value(Json *json, int depth) {
  char name[MAX_NAME + 1];
  if (depth > MAX_DEPTH) json_fail(json, "it is nested too deeply");
  char c = json_peek(json);
  if (c == '"') {
    read_string(json, name);
  } else if (c == '{') {
    for (bool is_first = true; next_key(json, &is_first, name);)
      skip_value(json, depth + 1);
  } else if (json_accept(json, '[')) {
    for (bool is_first = true; !json->failed && !json_accept(json, ']');
         is_first = false) {
      if (!is_first) json_expect(json, ',');
      skip_value(json, depth + 1);
    }
  } else {
    const char *begin = json->at;
    while (json->at < json->end &&
           (strchr("+-.", *json->at) ||
            (*json->at >= '0' && *json->at <= '9') ||
            (*json->at >= 'a' && *json->at <= 'z') || *json->at == 'E') &&
           *json->at)
      json->at++;
    if (json->at == begin) json_fail_here(json, "a value");
  }
}

static void expect_end(Json *json) {
  json_peek(json);
  if (json->at != json->end) json_fail_here(json, "nothing more");
}

/* ---- the header ---- */

static void read_shape(Json *json, StoredTensor *tensor) {
  json_expect(json, '[');
  for (tensor->rank = 0; !json->failed && !json_accept(json, ']');) {
    if (tensor->rank > 0) json_expect(json, ',');
    if (tensor->rank == SAFETENSORS_MAX_RANK) {
      json_fail(json, "its shape has more than %d dims", SAFETENSORS_MAX_RANK);
      return;
    }
    tensor->size[tensor->rank++] = read_integer(json);
  }
}

static void check_size(Json *json, const StoredTensor *tensor,
                       int64_t data_bytes) {
  long long begin = tensor->begin, end = tensor->end;
  int64_t bytes = dtype_bytes(tensor->dtype);
  char shape[24 * SAFETENSORS_MAX_RANK] = "";
  bool is_huge = false;
  for (int i = 0, n = 0; i < tensor->rank; i++) {
    n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld", i ? ", " : "",
                  (long long)tensor->size[i]);
    is_huge |= __builtin_mul_overflow(bytes, tensor->size[i], &bytes);
  }
  if (begin > end)
    json_fail(json, "its data_offsets [%lld, %lld] are reversed", begin, end);
  else if (is_huge)
    json_fail(json, "its shape [%s] is too large", shape);
  else if (end - begin != bytes)
    json_fail(
        json,
        "its shape [%s] of %s takes %lld bytes, but its data_offsets [%lld, "
        "%lld] hold %lld",
        shape, dtype_safetensors(tensor->dtype), (long long)bytes, begin, end,
        end - begin);
  else if (end > data_bytes)
    json_fail(
        json,
        "it ends at byte %lld of the data, but the file has only %lld: it is "
        "truncated",
        end, (long long)data_bytes);
}

enum { HAS_dtype = 1, HAS_shape = 2, HAS_offsets = 4, HAS_all = 7 };

/* The value of a key of a tensor; 0 where there is no such key. */
static int read_field(Json *json, const char *key, StoredTensor *tensor) {
  char text[MAX_NAME + 1];
  if (strcmp(key, "dtype") == 0) {
    read_string(json, text);
    if (!json->failed && !dtype_of_safetensors(text, &tensor->dtype))
      json_fail(json, "its dtype '%.40s' is unknown", text);
    return HAS_dtype;
  }
  if (strcmp(key, "shape") == 0) {
    read_shape(json, tensor);
    return HAS_shape;
  }
  if (strcmp(key, "data_offsets") != 0) return 0;
  json_expect(json, '[');
  tensor->begin = read_integer(json);
  json_expect(json, ',');
  tensor->end = read_integer(json);
  json_expect(json, ']');
  return HAS_offsets;
}

static void read_tensor(Json *json, int64_t data_bytes, StoredTensor *tensor) {
  char key[MAX_NAME + 1];
  int seen = 0;
  for (bool is_first = true; next_key(json, &is_first, key);) {
    int field = read_field(json, key, tensor);
    if (!field) json_fail(json, "it has an unknown key '%.40s'", key);
    if (seen & field) json_fail(json, "it has '%s' twice", key);
    seen |= field;
  }
  if (!json->failed && seen != HAS_all)
    json_fail(json, "it has no '%s'",
              !(seen & HAS_dtype)   ? "dtype"
              : !(seen & HAS_shape) ? "shape"
                                    : "data_offsets");
  if (!json->failed) check_size(json, tensor, data_bytes);
}

/* With NULL arrays: only checks and counts. */
typedef struct Sink {
  Arena *arena;
  StoredTensor *tensors;
  StoredText *texts;
  int n_tensors, n_texts;
} Sink;

static void add_text(Sink *sink, const char *key, const char *value) {
  if (sink->texts)
    sink->texts[sink->n_texts] = (StoredText){arena_strdup(sink->arena, key),
                                              arena_strdup(sink->arena, value)};
  sink->n_texts++;
}

static void read_texts(Json *json, Sink *sink) {
  char key[MAX_NAME + 1], value[MAX_NAME + 1];
  for (bool is_first = true; next_key(json, &is_first, key);) {
    read_string(json, value);
    if (!json->failed) add_text(sink, key, value);
  }
}

static void read_header(Json *json, int64_t data_bytes, Sink *sink) {
  char name[MAX_NAME + 1];
  bool has_metadata = false;
  for (bool is_first = true; next_key(json, &is_first, name);) {
    if (strcmp(name, "__metadata__") == 0) {
      if (has_metadata) json_fail(json, "it has '__metadata__' twice");
      has_metadata = true;
      read_texts(json, sink);
      continue;
    }
    StoredTensor tensor = {0};
    json->tensor = name;
    read_tensor(json, data_bytes, &tensor);
    json->tensor = NULL;
    if (json->failed) return;
    if (sink->tensors) {
      tensor.name = arena_strdup(sink->arena, name);
      sink->tensors[sink->n_tensors] = tensor;
    }
    sink->n_tensors++;
  }
  expect_end(json);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const StoredTensor *)a)->name,
                ((const StoredTensor *)b)->name);
}

static int by_place(const void *a, const void *b) {
  const StoredTensor *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int by_key(const void *a, const void *b) {
  return strcmp(((const StoredText *)a)->key, ((const StoredText *)b)->key);
}

static Status find_twice(const char *what, StoredText *texts, int n) {
  qsort(texts, (size_t)n, sizeof *texts, by_key);
  for (int i = 1; i < n; i++)
    if (strcmp(texts[i - 1].key, texts[i].key) == 0)
      return status_make(STATUS_invalid, "its %s has '%.*s' twice", what, SHOWN,
                         texts[i].key);
  return STATUS_OK;
}

static Status check_cover(StoredHeader *header, int64_t data_bytes) {
  StoredTensor *tensors = header->tensors;
  int n = header->n_tensors;
  qsort(tensors, (size_t)n, sizeof *tensors, by_name);
  for (int i = 1; i < n; i++)
    if (strcmp(tensors[i - 1].name, tensors[i].name) == 0)
      return status_make(STATUS_invalid, "its header has tensor '%.*s' twice",
                         SHOWN, tensors[i].name);
  qsort(tensors, (size_t)n, sizeof *tensors, by_place);
  int64_t at = 0;
  for (int i = 0; i < n; i++) {
    long long begin = tensors[i].begin;
    if (begin < at)
      return status_make(STATUS_invalid,
                         "tensors '%.*s' and '%.*s' overlap: one ends at byte "
                         "%lld of the data, the other begins at %lld",
                         SHOWN, tensors[i - 1].name, SHOWN, tensors[i].name,
                         (long long)at, begin);
    if (begin > at)
      return status_make(STATUS_invalid,
                         "there is a gap before tensor '%.*s': bytes %lld to "
                         "%lld of the data belong to no tensor",
                         SHOWN, tensors[i].name, (long long)at, begin - 1);
    at = tensors[i].end;
  }
  if (at != data_bytes)
    return status_make(
        STATUS_invalid,
        "its last %lld bytes belong to no tensor: the tensors end "
        "at byte %lld of the data",
        (long long)(data_bytes - at), (long long)at);
  return STATUS_OK;
}

Status safetensors_parse(Arena *arena, const char *text, size_t n,
                         int64_t data_bytes, StoredHeader *out) {
  Sink sink = {0};
  Json json = json_begin(text, n, "its header: ");
  *out = (StoredHeader){0};
  read_header(&json, data_bytes, &sink);
  if (json.failed) return json.status;
  sink = (Sink){
      .arena = arena,
      .tensors = ARENA_ARRAY(arena, StoredTensor, sink.n_tensors),
      .texts = ARENA_ARRAY(arena, StoredText, sink.n_texts),
  };
  json = json_begin(text, n, "its header: ");
  read_header(&json, data_bytes, &sink);
  *out = (StoredHeader){sink.tensors, sink.n_tensors, sink.texts, sink.n_texts};
  TRY(find_twice("header", out->metadata, out->n_metadata));
  return check_cover(out, data_bytes);
}

/* Only texts are stored; files of other tools may hold numbers here. */
static void read_metadata(Json *json, Sink *sink) {
  char key[MAX_NAME + 1], value[MAX_NAME + 1];
  if (json_peek(json) != '{') {
    skip_value(json, 0);
    return;
  }
  for (bool is_first = true; next_key(json, &is_first, key);) {
    if (json_peek(json) != '"') {
      skip_value(json, 0);
      continue;
    }
    read_string(json, value);
    if (!json->failed) add_text(sink, key, value);
  }
}

static void read_index(Json *json, Sink *map, Sink *metadata) {
  char name[MAX_NAME + 1];
  bool has_map = false, has_metadata = false;
  for (bool is_first = true; next_key(json, &is_first, name);) {
    if (strcmp(name, "weight_map") == 0) {
      if (has_map) json_fail(json, "it has 'weight_map' twice");
      has_map = true;
      read_texts(json, map);
    } else if (strcmp(name, "metadata") == 0) {
      if (has_metadata) json_fail(json, "it has 'metadata' twice");
      has_metadata = true;
      read_metadata(json, metadata);
    } else {
      skip_value(json, 0);
    }
  }
  expect_end(json);
  if (!has_map) json_fail(json, "it has no 'weight_map'");
}

static Status check_index(const StoredIndex *index) {
  TRY(find_twice("weight_map", index->map, index->n_map));
  TRY(find_twice("metadata", index->metadata, index->n_metadata));
  for (int i = 0; i < index->n_map; i++)
    if (!is_plain_file_name(index->map[i].value))
      return status_make(STATUS_invalid,
                         "tensor '%.*s' is in '%.*s', which is not the plain "
                         "name of a file in its folder",
                         SHOWN, index->map[i].key, SHOWN, index->map[i].value);
  return STATUS_OK;
}

Status safetensors_parse_index(Arena *arena, const char *text, size_t n,
                               StoredIndex *out) {
  Sink map = {0}, metadata = {0};
  Json json = json_begin(text, n, "");
  *out = (StoredIndex){0};
  read_index(&json, &map, &metadata);
  if (json.failed) return json.status;
  map = (Sink){.arena = arena,
               .texts = ARENA_ARRAY(arena, StoredText, map.n_texts)};
  metadata = (Sink){.arena = arena,
                    .texts = ARENA_ARRAY(arena, StoredText, metadata.n_texts)};
  json = json_begin(text, n, "");
  read_index(&json, &map, &metadata);
  *out =
      (StoredIndex){map.texts, map.n_texts, metadata.texts, metadata.n_texts};
  return check_index(out);
}

bool is_plain_file_name(const char *name) {
  size_t n = strlen(name);
  if (n == 0 || n > 255 || name[0] == '.') return false;
  for (size_t i = 0; i < n; i++)
    if (name[i] == '/' || (unsigned char)name[i] < 0x20) return false;
  return true;
}

bool is_step_name(const char *name, int64_t *out_step) {
  if (strncmp(name, "step-", 5) != 0) return false;
  size_t n = strspn(name + 5, "0123456789");
  if (n < 8 || n > 18 || name[5 + n]) return false;
  *out_step = strtoll(name + 5, NULL, 10);
  return true;
}
