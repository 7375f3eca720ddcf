/*
 * support.h -- declares what every other folder uses; support depends on no
 * other folder.
 *
 * Three kinds of failure are never mixed: the user's mistake is a Diag, the
 * machine's failure is a Status, our mistake is an ASSERT.  Memory is the
 * exception to Status: every byte of a compilation comes from one Memory, whose
 * owner (the tool) decides how the process ends when there is no more, so that
 * no other line of the compiler has to check an allocation.
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_LENGTH(array)      ((int)(sizeof(array) / sizeof((array)[0])))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

/* ---- assert.c: our own mistakes; also in release builds, exit code 4 ---- */

#define ASSERT(condition)                                                      \
  ((condition) ? (void)0                                                       \
               : assert_failed(__FILE__, __LINE__, __func__, #condition))
#define UNREACHABLE() assert_failed(__FILE__, __LINE__, __func__, "unreachable")

_Noreturn void assert_failed(const char *file, int line, const char *function,
                             const char *condition);

/* ---- status.c: the machine's failures ---- */

typedef enum StatusCode {
  STATUS_ok = 0,
  STATUS_io,          /* a file or disk */
  STATUS_unavailable, /* a library, device or tool that is not there */
  STATUS_lost,        /* a rank that died or went silent */
  STATUS_invalid,     /* data from outside that is not what it must be */
  STATUS_stopped,     /* a signal asks for the end */
} StatusCode;

/* The message lives as long as the process (status_make keeps the last 64 per
 * thread); ok has none.  */
typedef struct Status {
  StatusCode code;
  const char *message;
} Status;

#define STATUS_OK ((Status){STATUS_ok, NULL})
#define TRY(call)                                                              \
  do {                                                                         \
    Status try_status = (call);                                                \
    if (try_status.code != STATUS_ok) return try_status;                       \
  } while (0)

Status status_make(StatusCode code, const char *format, ...) PRINTF_LIKE(2, 3);
/* Adds ": strerror(error)" to the formatted message. */
Status status_errno(int error, const char *format, ...) PRINTF_LIKE(2, 3);

/* ---- memory.c: the one allocator ---- */

typedef struct Memory Memory;
typedef struct Arena Arena;

/* `on_exhausted` must not return; it may call memory_destroy.  */
Memory *memory_create(void (*on_exhausted)(void *user), void *user);
/* Frees every arena made from it.  */
void memory_destroy(Memory *memory);
/* As if a request had failed: for the owner of a thread whose own memory has
 * none left. */
_Noreturn void memory_exhausted(Memory *memory);
/* Gives what destroyed arenas had back to the system, where malloc can: other
 * threads have no use for it.  The first call of a process must come before it
 * starts threads: where another malloc is in use (AddressSanitizer's), it makes
 * glibc's own ready, which two threads cannot do at a time (glibc 2.36,
 * ptmalloc_init). */
void memory_trim(void);
/* Lets malloc keep what destroyed arenas had for the next ones, until
 * memory_trim: the system clears each page that it gives, which takes longer
 * than most passes.  For the whole process, and for programs that allocate all
 * they need through Memory. */
void memory_keep_freed(void);
/* At most this many bytes at a time: a request beyond them fails. */
void memory_limit(Memory *memory, size_t bytes);
bool memory_is_at_limit(const Memory *memory); /* one has failed for that */
/* For tests: the nth chunk request from now fails (n = 0: the next), and every
 * later one too if `forever`.  Negative n switches it off. */
void memory_fail_at(Memory *memory, int64_t n, bool forever);
/* How many chunk requests were made so far. */
int64_t memory_requests(const Memory *memory);

Arena *arena_create(Memory *memory);
Arena *arena_beside(const Arena *arena); /* another of the same memory */
void arena_destroy(Arena *arena);
/* Frees what it holds, and keeps memory for about as much. */
void arena_clear(Arena *arena);
/* Frees all that it holds, and keeps a chunk for what comes next. */
void arena_clear(Arena *arena);
/* The first one gets all allocations of the second, which is destroyed.  Both
 * are of the same memory. */
void arena_adopt(Arena *arena, Arena *from);
/* Bytes of all allocations so far, and unused ends of chunks but the last. */
size_t arena_bytes(const Arena *arena);
/* Zeroed, aligned to 16 bytes, never NULL; lives until the arena is destroyed.
 * Size 0 gives a valid pointer. */
void *arena_alloc(Arena *arena, size_t size_bytes);
void *arena_copy(Arena *arena, const void *data, size_t size_bytes);
char *arena_strdup(Arena *arena, const char *text);
char *arena_printf(Arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);
char *arena_vprintf(Arena *arena, const char *format, va_list args);
#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define ARENA_ARRAY(arena, type, n)                                            \
  ((type *)arena_array((arena), (int64_t)(n), sizeof(type)))
/* Asserts that n >= 0 and n * item_bytes does not overflow. */
void *arena_array(Arena *arena, int64_t n, size_t item_bytes);

/* ---- vec.c: growing arrays in an arena ---- */

/* `VEC(int) v = {0}; vec_push(arena, &v, 3); v.data[0]; v.n` */
#define VEC(type)                                                              \
  struct {                                                                     \
    type *data;                                                                \
    int n, capacity;                                                           \
  }
#define vec_push(arena, vec, ...)                                              \
  ((vec)->n < (vec)->capacity                                                  \
       ? (void)0                                                               \
       : vec_grow((arena), (void **)&(vec)->data, &(vec)->capacity, (vec)->n,  \
                  sizeof(*(vec)->data)),                                       \
   (vec)->data[(vec)->n++] = (__VA_ARGS__))
void vec_grow(Arena *arena, void **data, int *capacity, int n,
              size_t item_bytes);
/* Room for `wanted` items in all, of an array that is still empty. */
#define vec_reserve(arena, vec, wanted)                                        \
  (ASSERT((vec)->n == 0), (vec)->capacity = (wanted),                          \
   (vec)->data = arena_array((arena), (vec)->capacity, sizeof(*(vec)->data)))

/* ---- names.c: interned strings, compared by address ---- */

typedef const char *Name; /* NUL-terminated; only ever from name_intern */
typedef struct Names Names;

Names *names_create(Arena *arena);
/* Holds the names of `base` too, which may get no new ones while this table is
 * in use.  So several threads can each intern names above one base. */
Names *names_create_above(Arena *arena, const Names *base);
Name name_intern(Names *names, const char *text);
Name name_intern_n(Names *names, const char *text, size_t length);
Name name_format(Names *names, const char *format, ...) PRINTF_LIKE(2, 3);
/* At most four parts, one after the other: what paths are made with. */
Name name_join(Names *names, const char *const *parts, int n);

/* ---- map.c: a hash table from 64-bit keys or pointers; insertion order is
 *      kept for iteration, so that walking one is deterministic ---- */

typedef struct Map Map;

Map *map_create(Arena *arena);
void map_put(Map *map, const void *key, void *value); /* replaces */
void *map_get(const Map *map, const void *key);       /* NULL if absent */
bool map_has(const Map *map, const void *key);
int map_size(const Map *map);
const void *map_key_at(const Map *map, int index);
void *map_value_at(const Map *map, int index);

/* ---- text.c: building text ---- */

typedef struct Text {
  Arena *arena;
  char *data; /* NUL-terminated once anything was added */
  size_t n, capacity;
} Text;

Text text_create(Arena *arena);
void text_add(Text *text, const char *string);
void text_add_n(Text *text, const char *bytes, size_t n);
void text_printf(Text *text, const char *format, ...) PRINTF_LIKE(2, 3);
/* The shortest decimal that reads back as the same double, in the "C" locale;
 * always with a '.', an 'e', "inf" or "nan", so that it is not an integer. */
void text_add_real(Text *text, double value);
/* Reads all of a decimal text, whatever the locale; false if it is no number.
 */
bool text_read_real(const char *text, size_t n, double *out_value);
/* Length of the valid UTF-8 sequence at `bytes` (ended by NUL), else 0. */
int text_utf8_length(const char *bytes);
/* "..." with JSON escapes (also for control characters and invalid UTF-8). */
void text_add_json(Text *text, const char *string);
const char *text_string(Text *text); /* never NULL */

/* ---- message.c: text of messages ---- */

/* As arena_vprintf, but a %s argument is truncated after 200 bytes, with its
 * length.  Knows %s, integers up to long long and floats. */
const char *message_vprintf(Arena *arena, const char *format, va_list args);
/* Control characters but newline and tab, and what is no UTF-8, as "\x1b". */
void message_escape(Text *out, const char *text);
/* To standard error in one write, escaped; truncated after 8 KB. */
void message_print(const char *format, ...) PRINTF_LIKE(1, 2);
/* At most 20 of these lines, and how many there are; long ones are truncated.
 * */
void message_print_list(const char *lines);

/* ---- fixed_text.c: text in a buffer of fixed size, truncated with "..." ----
 */

typedef struct FixedText {
  char *data;
  size_t n, capacity; /* n < capacity; a NUL follows */
  bool is_cut;
} FixedText;

FixedText fixed_text(char *data, size_t capacity); /* more than 4 bytes */
void fixed_printf(FixedText *text, const char *format, ...) PRINTF_LIKE(2, 3);
void fixed_vprintf(FixedText *text, const char *format, va_list args);

/* ---- text.c: distances ---- */

/* Edit distance (insert, delete, replace, swap neighbours), for "did you
 * mean". */
int text_distance(const char *a, const char *b);
const char *text_with_commas(Arena *arena, int64_t number); /* "1,234,567" */
/* "1.25 MB" */
const char *text_quantity(Arena *arena, double value, const char *unit);
/* Memory of a rank: "0.2 MB" with so many decimals, "171.75 TB". */
enum { MEMORY_TEXT = 32 };
const char *text_memory(char buffer[MEMORY_TEXT], double bytes, int decimals);
/* Nearest of `candidates` within a third of the length, or NULL. */
const char *text_nearest(const char *wanted, const char *const *candidates,
                         int n);

/* ---- source.c, diag.c: the user's mistakes ---- */

typedef struct Source {
  const char *path; /* as shown in messages */
  const char *text; /* NUL-terminated */
  size_t n;
} Source;

/* Bytes [begin, end) of a source; `source` NULL means "no place". */
typedef struct Span {
  const Source *source;
  uint32_t begin, end;
} Span;

#define SPAN_NONE ((Span){NULL, 0, 0})
/* The complete file: messages show its path only. */
#define SPAN_FILE(source) ((Span){(source), 1, 0})
Span span_join(Span a, Span b);
/* Line and column count from 1; columns count bytes. */
void span_locate(Span span, int *out_line, int *out_column);

/* The text of the span, on one line and without comments. */
const char *span_text(Arena *arena, Span span);

typedef enum Severity {
  SEVERITY_error,
  SEVERITY_warning,
  SEVERITY_note,
  N_SEVERITIES
} Severity;

/* Every message of the compiler is a row of diags.def. */
typedef enum DiagId {
#define DIAG(name, severity, format) DIAG_##name,
#include "support/diags.def"
  N_DIAGS
} DiagId;

typedef struct Diags Diags; /* the list of what went wrong so far */
typedef struct Diag Diag;   /* one message, to hang notes and a help on */

Diags *diags_create(Arena *arena);
/* Formats the row's text with the arguments.  Never NULL, also after the
 * limit of 20 errors, when it is counted but not kept.  A second error with
 * the same row and place is dropped. */
Diag *diag(Diags *diags, DiagId id, Span span, ...);
void diag_note(Diag *diag, Span span, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* One help line; a second call replaces the first. */
void diag_help(Diag *diag, const char *format, ...) PRINTF_LIKE(2, 3);
/* Whether this was reported at this place. */
bool diags_have(const Diags *diags, DiagId id, Span span);
int diags_errors(const Diags *diags);
/* Returns the sentence of the first error, as it is printed; NULL: none. */
const char *diags_first_error(const Diags *diags, Arena *arena);
int diags_warnings(const Diags *diags);
/* All that was added since the last call, in order of addition:
 *   file:line:col: error: text
 *      19 |   source line
 *         |       ^~~~
 *   file:line:col: note: text
 *   help: text                                                            */
void diags_print(Diags *diags, Text *out);

/* ---- hash.c ---- */

uint64_t hash_bytes(const void *data, size_t n, uint64_t seed); /* XXH3 */
/* The hash with one more number: of less quality than hash_bytes, but faster;
 * for tables in memory alone. */
static inline uint64_t hash_mix(uint64_t hash, uint64_t number) {
  hash = (hash ^ number) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 29;
}
/* 128 bits of XXH3 as 32 hex digits and NUL. */
void hash_hex(const void *data, size_t n, char out_hex[33]);

typedef struct Sha256 {
  uint32_t state[8];
  uint64_t n_bytes;
  uint8_t block[64];
} Sha256;
void sha256_begin(Sha256 *sha);
void sha256_add(Sha256 *sha, const void *data, size_t n);
void sha256_end(Sha256 *sha, char out_hex[65]);

/* ---- random.c: counter-based random numbers (Philox 4x32-10, Salmon et al.
 *      2011); the same on every machine, for every plan and device ---- */

/* Four 32-bit words for (key, counter). */
void philox(uint64_t key, uint64_t counter_low, uint64_t counter_high,
            uint32_t out[4]);
/* The key of a path under a seed: hash_bytes(path, seed). */
uint64_t random_key(uint64_t seed, const char *path);
/* Uniform on [0, 1), 53 bits; element `index` of the stream of `key`. */
double random_uniform(uint64_t key, uint64_t index);
/* Standard normal (Box-Muller on own polynomials, no libm). */
double random_normal(uint64_t key, uint64_t index);
/* The same for n elements from `first` on, in half of the time. */
void random_normals(uint64_t key, uint64_t first, int64_t n, double *out);
/* Uniform on [0, n), n > 0. */
uint64_t random_below(uint64_t key, uint64_t index, uint64_t n);
/* The key of a random number inside a graph: the seed mixed (splitmix64) with
 * (uint32_t)hash_bytes(stream, strlen(stream), 0); plain arithmetic, because
 * emitted code does it too. */
static inline uint64_t random_stream(uint64_t seed, uint32_t stream) {
  uint64_t z = seed + UINT64_C(0x9E3779B97F4A7C15) * ((uint64_t)stream + 1);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}
/* Whether element `index` survives a dropout of probability p at `step`.  It
 * compares integers only, so that emitted code can compute the same numbers. */
static inline bool random_keep(uint64_t key, uint64_t step, uint64_t index,
                               double p) {
  uint32_t words[4];
  philox(key, index, step, words);
  return (words[0] >> 8) >= (uint32_t)(p * 16777216.0);
}

/* ---- half.c: 16-bit floats, rounded to nearest, ties to even ---- */

uint16_t bf16_from_float(float value);
float bf16_to_float(uint16_t half);
uint16_t f16_from_float(float value);
float f16_to_float(uint16_t half);

/* ---- init.c: initial values of parameters and states ---- */

typedef enum InitKind {
  INIT_zeros,
  INIT_constant,     /* a */
  INIT_normal,       /* a = standard deviation */
  INIT_trunc_normal, /* a; redrawn beyond 2 a */
  INIT_uniform,      /* on (-a, a) */
  INIT_orthogonal,   /* a = set of dims, bits by index: rows of a matrix whose
                        columns are the rest; the fewer are orthonormal */
  INIT_eye,          /* of two dims: 1 where their indices are equal */
} InitKind;

typedef struct Init {
  InitKind kind;
  double a;
} Init;

/* Whether an element depends on its index alone; orthogonal ones do not. */
bool init_is_elementwise(InitKind kind);
/* Element `index` (row-major in the parameter's own dim order) of the tensor
 * with this key and these sizes, which only eye reads; independent of plan and
 * device. */
double init_value(Init init, uint64_t key, const int64_t *sizes,
                  uint64_t index);
/* All elements of a tensor, of any kind; orthogonal uses scratch memory. */
void init_fill(Arena *scratch, Init init, uint64_t key, const int64_t *sizes,
               int rank, double *out);

/* ---- what the runtime measures and passes price ---- */

/* Ranks that have sent nothing for so long are at rest: their next collective
 * takes as long as any. */
#define DNN_REST_NS 1000000

/* ---- folder.c, file.c, dylib.c: not compiled for wasm32-wasi ---- */

/* Makes BESIDE.unfinished-XXXXXX and locks it: *out_lock is a descriptor to be
 * closed in the end, or -1 on a disk without locks. */
Status folder_create_unfinished(Arena *arena, const char *beside,
                                const char **out_path, int *out_lock);
bool folder_is_unfinished(const char *name);
/* Visits the folders of this name in `folder` whose process is gone: they are
 * locked for the visit, which may remove them. */
void folder_each_abandoned(Arena *arena, const char *folder,
                           void (*visit)(void *user, const char *path,
                                         const char *name),
                           void *user);
/* A descriptor that holds a folder, for children too if `by_children`; or -1:
 * EWOULDBLOCK, another process holds it; ENOENT, it is gone; otherwise this
 * disk has no locks. */
int folder_hold(const char *path, bool by_children);

/* Reads a regular file of at most `limit` bytes into the arena, with a
 * NUL after it. */
Status file_read(Arena *arena, const char *path, size_t limit,
                 const char **out_bytes, size_t *out_n);
/* Writes beside, syncs, renames: the regular file that `path` leads to is
 * complete or unchanged.  A pipe or a device is written into. */
Status file_replace(const char *path, const void *bytes, size_t n);
/* Finds before the work begins what would make file_replace fail: no folder, or
 * one that cannot be written. */
Status file_check_output(const char *path);
/* Likewise for files in a folder that file_make_dirs will make. */
Status file_check_folder(const char *path);
/* The file that the links of `path` lead to, which need not be there. */
Status file_link_target(Arena *arena, const char *path, const char **out);
Status file_make_dirs(const char *path);
bool file_exists(const char *path);
/* The path of the file in the same folder whose name is nearest; NULL: none. */
const char *file_nearest(Arena *arena, const char *path);
/* Call first in main.  A process may be started with standard streams closed;
 * the next file that is opened would become one of them and get what is printed
 * there.  Each closed one gets a stream that cannot be written. */
void file_fill_standard_streams(void);
/* Likewise: a write beyond the size limit of files (ulimit -f) fails with EFBIG
 * like other failures of a disk, where SIGXFSZ would kill the process. */
void file_let_writes_fail(void);

typedef struct Dylib Dylib;
/* Opens the first of `names` (a NULL-ended list of sonames or absolute paths)
 * that loads; `$env` names a variable holding a path to try first, or NULL. */
Status dylib_open(const char *env, const char *const *names, Dylib **out);
void *dylib_symbol(Dylib *dylib, const char *name); /* NULL if absent */
const char *dylib_path(const Dylib *dylib);
void dylib_close(Dylib *dylib);

#endif
