/*
 * safetensors.c -- reads the JSON header of a safetensors file and the index
 * beside several of them.
 *
 * A checkpoint may come from anywhere.  General JSON readers are lenient (two
 * values for one key, text behind the end, integers beyond 2^53 rounded), so
 * this is a reader of exactly the grammar that the format has.  It goes over
 * the text twice: once to check and count, then to store.
 */
#include "runtime/checkpoint.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_NAME = 4096 };

typedef struct Json {
  const char *at, *end, *begin;
  bool failed, is_short; /* is_short: a tensor ends behind the file */
} Json;

/* ---- tokens ---- */

static void fail(Json *json) {
  json->failed = true;
  json->at = json->end;
}

static char peek(Json *json) {
  while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' ||
                                  *json->at == '\t' || *json->at == '\r'))
    json->at++;
  return json->at < json->end ? *json->at : '\0';
}

static bool accept(Json *json, char c) {
  if (peek(json) != c || json->at == json->end) return false;
  json->at++;
  return true;
}

static void expect(Json *json, char c) {
  if (!accept(json, c)) fail(json);
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static unsigned hex4(Json *json) {
  unsigned value = 0;
  for (int i = 0; i < 4; i++) {
    int digit = json->at < json->end ? hex_digit(*json->at) : -1;
    if (digit < 0) {
      fail(json);
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
    fail(json);
    return 0;
  }
  unsigned code = hex4(json);
  if (code >= 0xd800 && code < 0xdc00) {
    if (json->end - json->at < 6 || json->at[0] != '\\' || json->at[1] != 'u') {
      fail(json);
      return 0;
    }
    json->at += 2;
    unsigned low = hex4(json);
    if (low < 0xdc00 || low > 0xdfff) fail(json);
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code == 0 || (code >= 0xdc00 && code < 0xe000)) {
    fail(json);
  }
  return json->failed ? 0 : put_utf8(code, to);
}

/* Decoded into `to`; longer than MAX_NAME fails.  Result: length. */
static size_t read_string(Json *json, char to[MAX_NAME + 1]) {
  size_t n = 0;
  expect(json, '"');
  while (!json->failed) {
    if (json->at == json->end || n + 4 > MAX_NAME ||
        (unsigned char)*json->at < 0x20) {
      fail(json);
      break;
    }
    char c = *json->at++;
    if (c == '"') break;
    if (c == '\\')
      n += (size_t)read_escape(json, to + n);
    else
      to[n++] = c;
  }
  to[n] = '\0';
  return n;
}

/* 0 or more, below 2^62, no sign, point or exponent. */
static int64_t read_integer(Json *json) {
  int64_t value = 0;
  if (peek(json) < '0' || peek(json) > '9') fail(json);
  bool starts_with_zero = !json->failed && *json->at == '0';
  const char *begin = json->at;
  while (json->at < json->end && *json->at >= '0' && *json->at <= '9') {
    if (value > (INT64_C(1) << 62) / 10 - 1) fail(json);
    if (json->failed) return 0;
    value = value * 10 + (*json->at++ - '0');
  }
  if (starts_with_zero && json->at - begin > 1) fail(json);
  if (json->at < json->end && strchr(".eE+-", *json->at) && *json->at)
    fail(json);
  return value;
}

/* The next key of an object, from its brace on; false: it ended or is wrong. */
static bool next_key(Json *json, bool *is_first, char key[MAX_NAME + 1]) {
  if (*is_first) expect(json, '{');
  if (json->failed || accept(json, '}')) return false;
  if (!*is_first) expect(json, ',');
  *is_first = false;
  read_string(json, key);
  expect(json, ':');
  return !json->failed;
}

/* Any value, where the format allows what we do not read. */
static void skip_value(Json *json, int depth) {
  char name[MAX_NAME + 1];
  if (depth > MAX_DEPTH) fail(json);
  char c = peek(json);
  if (c == '"') {
    read_string(json, name);
  } else if (c == '{') {
    for (bool is_first = true; next_key(json, &is_first, name);)
      skip_value(json, depth + 1);
  } else if (accept(json, '[')) {
    for (bool is_first = true; !json->failed && !accept(json, ']');
         is_first = false) {
      if (!is_first) expect(json, ',');
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
    if (json->at == begin) fail(json);
  }
}

static void expect_end(Json *json) {
  peek(json);
  if (json->at != json->end) fail(json);
}

/* ---- the header ---- */

static int find_dtype(const char *name) {
  static const char *const names[] = {
#define DTYPE(name, size_bytes, class, c_type, safetensors) safetensors,
#include "support/dtype.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(names); i++)
    if (strcmp(names[i], name) == 0) return i;
  return -1;
}

static void read_shape(Json *json, StoredTensor *tensor) {
  expect(json, '[');
  for (tensor->rank = 0; !json->failed && !accept(json, ']');) {
    if (tensor->rank > 0) expect(json, ',');
    if (tensor->rank == SAFETENSORS_MAX_RANK) {
      fail(json);
      return;
    }
    tensor->size[tensor->rank++] = read_integer(json);
  }
}

static bool size_is_right(const StoredTensor *tensor, int64_t data_bytes) {
  int64_t bytes = dtype_bytes(tensor->dtype);
  for (int i = 0; i < tensor->rank; i++)
    if (__builtin_mul_overflow(bytes, tensor->size[i], &bytes)) return false;
  return tensor->begin <= tensor->end && tensor->end <= data_bytes &&
         tensor->end - tensor->begin == bytes;
}

static void read_tensor(Json *json, int64_t data_bytes, StoredTensor *tensor) {
  enum { HAS_dtype = 1, HAS_shape = 2, HAS_offsets = 4, HAS_all = 7 };
  char text[MAX_NAME + 1];
  int seen = 0;
  for (bool is_first = true; next_key(json, &is_first, text);) {
    int field = 0;
    if (strcmp(text, "dtype") == 0) {
      field = HAS_dtype;
      read_string(json, text);
      int dtype = find_dtype(text);
      if (dtype < 0) fail(json);
      tensor->dtype = (DnnDtype)(dtype < 0 ? 0 : dtype);
    } else if (strcmp(text, "shape") == 0) {
      field = HAS_shape;
      read_shape(json, tensor);
    } else if (strcmp(text, "data_offsets") == 0) {
      field = HAS_offsets;
      expect(json, '[');
      tensor->begin = read_integer(json);
      expect(json, ',');
      tensor->end = read_integer(json);
      expect(json, ']');
    }
    if (!field || (seen & field)) fail(json);
    seen |= field;
  }
  json->is_short = seen == HAS_all && tensor->end > data_bytes;
  if (seen != HAS_all || !size_is_right(tensor, data_bytes)) fail(json);
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
      if (has_metadata) fail(json);
      has_metadata = true;
      read_texts(json, sink);
      continue;
    }
    StoredTensor tensor = {0};
    read_tensor(json, data_bytes, &tensor);
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

static Status find_twice(StoredText *texts, int n) {
  qsort(texts, (size_t)n, sizeof *texts, by_key);
  for (int i = 1; i < n; i++)
    if (strcmp(texts[i - 1].key, texts[i].key) == 0)
      return status_make(STATUS_invalid, "its header has '%s' twice",
                         texts[i].key);
  return STATUS_OK;
}

static Status check_cover(StoredHeader *header, int64_t data_bytes) {
  StoredTensor *tensors = header->tensors;
  int n = header->n_tensors;
  qsort(tensors, (size_t)n, sizeof *tensors, by_name);
  for (int i = 1; i < n; i++)
    if (strcmp(tensors[i - 1].name, tensors[i].name) == 0)
      return status_make(STATUS_invalid, "its header has tensor '%s' twice",
                         tensors[i].name);
  qsort(tensors, (size_t)n, sizeof *tensors, by_place);
  int64_t at = 0;
  for (int i = 0; i < n; i++) {
    if (tensors[i].begin != at)
      return status_make(
          STATUS_invalid,
          "tensor '%s' begins at byte %lld of the data, not %lld",
          tensors[i].name, (long long)tensors[i].begin, (long long)at);
    at = tensors[i].end;
  }
  if (at != data_bytes)
    return status_make(STATUS_invalid, "%lld bytes of data belong to no tensor",
                       (long long)(data_bytes - at));
  return STATUS_OK;
}

Status safetensors_parse(Arena *arena, const char *text, size_t n,
                         int64_t data_bytes, StoredHeader *out) {
  Sink sink = {0};
  Json json = {text, text + n, text, false, false};
  *out = (StoredHeader){0};
  read_header(&json, data_bytes, &sink);
  if (json.failed)
    return status_make(STATUS_invalid,
                       json.is_short
                           ? "it is truncated: a tensor ends behind its end"
                           : "its header is not one of a safetensors file");
  sink = (Sink){
      .arena = arena,
      .tensors = ARENA_ARRAY(arena, StoredTensor, sink.n_tensors),
      .texts = ARENA_ARRAY(arena, StoredText, sink.n_texts),
  };
  json = (Json){text, text + n, text, false, false};
  read_header(&json, data_bytes, &sink);
  *out = (StoredHeader){sink.tensors, sink.n_tensors, sink.texts, sink.n_texts};
  TRY(find_twice(out->metadata, out->n_metadata));
  return check_cover(out, data_bytes);
}

static void read_index(Json *json, Sink *sink) {
  char name[MAX_NAME + 1];
  bool has_map = false;
  for (bool is_first = true; next_key(json, &is_first, name);) {
    if (strcmp(name, "weight_map") == 0) {
      if (has_map) fail(json);
      has_map = true;
      read_texts(json, sink);
    } else {
      skip_value(json, 0);
    }
  }
  expect_end(json);
  if (!has_map) fail(json);
}

Status safetensors_parse_index(Arena *arena, const char *text, size_t n,
                               StoredText **out, int *out_n) {
  Sink sink = {0};
  Json json = {text, text + n, text, false, false};
  read_index(&json, &sink);
  if (json.failed)
    return status_make(STATUS_invalid, "the index has no 'weight_map'");
  sink = (Sink){.arena = arena,
                .texts = ARENA_ARRAY(arena, StoredText, sink.n_texts)};
  json = (Json){text, text + n, text, false, false};
  read_index(&json, &sink);
  *out = sink.texts;
  *out_n = sink.n_texts;
  TRY(find_twice(*out, *out_n));
  for (int i = 0; i < *out_n; i++)
    if (!is_plain_file_name((*out)[i].value))
      return status_make(STATUS_invalid,
                         "the index names a file that is not a plain name "
                         "in its folder");
  return STATUS_OK;
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
