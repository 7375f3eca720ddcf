/*
 * infer.c -- implements the helpers that the infer rules share.
 */
#include "ir/ops/infer.h"

static const char *infer_type_text(const Infer *in, const Type *type) {
  Text text = text_create(in->module->arena);
  type_print(&text, type_logical(in->module->arena, type), NULL);
  return text_string(&text);
}

Infer infer_begin(Module *module, const OpCall *call, Span span) {
  return (Infer){.module = module,
                 .call = call,
                 .span = span,
                 .op = op_info(call->op)->name};
}

/* ---- attributes ---- */

bool infer_has(const Infer *in, AttrKey key) {
  return attrs_find(in->call->attrs, key) != NULL;
}

static const Attr *required_attr(Infer *in, AttrKey key) {
  const Attr *attr = attrs_find(in->call->attrs, key);
  if (!attr) {
    in->failed = true;
    diag(in->module->diags, DIAG_op_attr_missing, in->span, in->op,
         attr_name(key));
  }
  return attr;
}

NameSpan infer_names(Infer *in, AttrKey key, bool is_required) {
  const Attr *attr =
      is_required ? required_attr(in, key) : attrs_find(in->call->attrs, key);
  NameSpan names = {attr ? attr->names : NULL, attr ? attr->n : 0};
  for (int i = 0; i < names.n; i++) {
    NameSpan before = {names.items, i};
    if (!names_have(before, names.items[i])) continue;
    in->failed = true;
    diag(in->module->diags, DIAG_op_name_twice, in->span, names.items[i],
         attr_name(key), in->op);
  }
  return names;
}

Name infer_name(Infer *in, AttrKey key) {
  const Attr *attr = required_attr(in, key);
  return attr ? attr->name : name_intern(in->module->names, "");
}

int64_t infer_int(Infer *in, AttrKey key, int64_t if_absent) {
  const Attr *attr = attrs_find(in->call->attrs, key);
  return attr ? attr->integer : if_absent;
}

double infer_real(const Infer *in, AttrKey key, double if_absent) {
  const Attr *attr = attrs_find(in->call->attrs, key);
  return attr ? attr->real : if_absent;
}

void infer_ints(Infer *in, AttrKey key, int n, int64_t low, int64_t high,
                int64_t if_absent, int64_t *out) {
  for (int i = 0; i < n; i++) out[i] = if_absent < low ? low : if_absent;
  const Attr *attr = attrs_find(in->call->attrs, key);
  if (!attr) {
    if (if_absent < low) required_attr(in, key);
    return;
  }
  if (attr->n != n) {
    in->failed = true;
    diag(in->module->diags, DIAG_op_attr_count, in->span, attr_name(key),
         in->op, attr->n, n);
    return;
  }
  for (int i = 0; i < n; i++) {
    if (attr->integers[i] >= low && attr->integers[i] <= high) {
      out[i] = attr->integers[i];
      continue;
    }
    in->failed = true;
    diag(in->module->diags, DIAG_op_attr_range, in->span, attr_name(key),
         in->op, (long)attr->integers[i], (long)low, (long)high);
  }
}

DType infer_dtype_attr(Infer *in, DType if_absent) {
  const Attr *attr = attrs_find(in->call->attrs, ATTR_dtype);
  DType dtype = if_absent;
  if (attr && !dtype_find(attr->name, &dtype)) {
    in->failed = true;
    diag(in->module->diags, DIAG_op_unknown_dtype, in->span, attr->name,
         in->op);
  }
  return dtype;
}

/* ---- operands ---- */

const Type *infer_type(const Infer *in, int operand) {
  ASSERT(operand >= 0 && operand < in->call->n_inputs);
  return in->call->types[operand];
}

int64_t infer_size(Infer *in, int operand, Name dim) {
  const Type *type = infer_type(in, operand);
  int index = type_find(type, dim);
  if (index >= 0) return type->dims[index].size;
  if (!*dim) return 1; /* the attribute is missing, reported */
  in->failed = true;
  diag(in->module->diags, DIAG_op_no_dim, in->span, operand + 1, in->op, dim,
       infer_type_text(in, type));
  return 1;
}

void infer_lacks(Infer *in, int operand, Name dim) {
  const Type *type = infer_type(in, operand);
  if (type_find(type, dim) < 0) return;
  in->failed = true;
  diag(in->module->diags, DIAG_op_extra_dim, in->span, operand + 1, in->op, dim,
       infer_type_text(in, type));
}

void infer_mismatch(Infer *in, int a, int b, Name dim, int64_t size_a,
                    int64_t size_b) {
  in->failed = true;
  Diag *d = diag(in->module->diags, DIAG_size_mismatch, in->span, dim,
                 (long)size_a, (long)size_b);
  diag_note(d, in->span, "operand %d of '%s' is %s", a + 1, in->op,
            infer_type_text(in, infer_type(in, a)));
  diag_note(d, in->span, "operand %d of '%s' is %s", b + 1, in->op,
            infer_type_text(in, infer_type(in, b)));
}

void infer_agree(Infer *in, int a, int b, Name dim) {
  int i = type_find(infer_type(in, a), dim);
  int j = type_find(infer_type(in, b), dim);
  if (i < 0 || j < 0) return;
  int64_t x = infer_type(in, a)->dims[i].size;
  int64_t y = infer_type(in, b)->dims[j].size;
  if (x != y) infer_mismatch(in, a, b, dim, x, y);
}

void infer_numbers(Infer *in, const char *what, int64_t n, DType dtype,
                   const char *note, const char *help) {
  int64_t most = dtype_largest_integer(dtype);
  if (in->failed || n - 1 <= most) return;
  in->failed = true;
  const char *called = in->call->called ? in->call->called : in->op;
  Diag *d = diag(in->module->diags, DIAG_positions, in->span, called, what,
                 (long long)n - 1, dtype_name(dtype), (long long)most);
  diag_note(d, in->span, "%s", note);
  diag_help(d, "%s", help);
}

void infer_positions(Infer *in, Name dim, int64_t n, DType dtype) {
  const char *note = arena_printf(in->module->arena, "'%s' has %lld elements",
                                  dim, (long long)n);
  infer_numbers(in, "positions", n, dtype, note,
                "split the dimension into two, as in x[N -> (P, Q)], and work "
                "along one of them after the other");
}

void infer_want(Infer *in, int operand, const char *wanted) {
  in->failed = true;
  diag(in->module->diags, DIAG_op_dtype, in->span, operand + 1, in->op, wanted,
       infer_type_text(in, infer_type(in, operand)));
}

void infer_want_real(Infer *in, int operand) {
  if (dtype_class(infer_type(in, operand)->dtype) != CLASS_FLOAT) {
    infer_want(in, operand, "a float");
  }
}

void infer_want_number(Infer *in, int operand) {
  if (dtype_class(infer_type(in, operand)->dtype) == CLASS_BOOL) {
    infer_want(in, operand, "a number");
  }
}

void infer_want_integer(Infer *in, int operand) {
  if (dtype_class(infer_type(in, operand)->dtype) != CLASS_INT) {
    infer_want(in, operand, "an integer");
  }
}

void infer_want_same_dims(Infer *in, int a, int b) {
  const Type *x = infer_type(in, a), *y = infer_type(in, b);
  for (int i = 0; i < x->rank; i++) {
    infer_size(in, b, x->dims[i].name);
    infer_agree(in, a, b, x->dims[i].name);
  }
  for (int i = 0; i < y->rank; i++) infer_size(in, a, y->dims[i].name);
}

/* ---- results ---- */

bool names_have(NameSpan names, Name name) {
  for (int i = 0; i < names.n; i++) {
    if (names.items[i] == name) return true;
  }
  return false;
}

int dims_find(const Dims *dims, Name name) {
  for (int i = 0; i < dims->n; i++) {
    if (dims->items[i].name == name) return i;
  }
  return -1;
}

void dims_add(Dims *dims, Name name, int64_t size) {
  if (dims->n < ARRAY_LENGTH(dims->items)) {
    dims->items[dims->n++] = (Dim){.name = name, .size = size};
  } else {
    dims->is_full = true;
  }
}

void dims_add_type(Dims *dims, const Type *type, NameSpan but) {
  for (int i = 0; i < type->rank; i++) {
    if (names_have(but, type->dims[i].name)) continue;
    dims_add(dims, type->dims[i].name, type->dims[i].size);
  }
}

/* The first operand that has the dim, for messages. */
static int first_with(const Infer *in, Name dim) {
  int operand = 0;
  while (type_find(infer_type(in, operand), dim) < 0) operand++;
  return operand;
}

void dims_union(Infer *in, Dims *dims, int operand, NameSpan but) {
  const Type *type = infer_type(in, operand);
  for (int i = 0; i < type->rank; i++) {
    const Dim *dim = &type->dims[i];
    if (names_have(but, dim->name)) continue;
    int at = dims_find(dims, dim->name);
    if (at < 0) {
      dims_add(dims, dim->name, dim->size);
    } else if (dims->items[at].size != dim->size) {
      infer_mismatch(in, first_with(in, dim->name), operand, dim->name,
                     dims->items[at].size, dim->size);
    }
  }
}

static void infer_check_dims(Infer *in, const Dims *dims) {
  Diags *diags = in->module->diags;
  if (dims->is_full || dims->n > MAX_RANK) {
    in->failed = true;
    diag(diags, DIAG_op_rank, in->span, in->op, MAX_RANK);
  }
  int64_t elements = 1;
  bool is_too_large = false;
  for (int i = 0; i < dims->n; i++) {
    if (dims_find(dims, dims->items[i].name) != i) {
      in->failed = true;
      diag(diags, DIAG_op_dim_twice, in->span, in->op, dims->items[i].name);
    }
    /* Room for bytes and a few operations an element in 63 bits. */
    is_too_large =
        is_too_large || elements > (INT64_MAX >> 8) / dims->items[i].size;
    if (!is_too_large) elements *= dims->items[i].size;
  }
  if (is_too_large) {
    in->failed = true;
    diag(diags, DIAG_op_too_large, in->span, in->op);
  }
}

static bool type_has_dims(const Type *type, const Dims *dims) {
  bool same = type->rank == dims->n;
  for (int i = 0; i < dims->n && same; i++)
    same = type->dims[i].name == dims->items[i].name &&
           type->dims[i].size == dims->items[i].size &&
           type->dims[i].split == dims->items[i].split;
  return same;
}

const Type *infer_result(Infer *in, DType dtype, const Dims *dims) {
  if (in->failed) return NULL; /* do not report its consequences */
  infer_check_dims(in, dims);
  if (in->failed) return NULL;
  for (int i = 0; i < in->call->n_inputs; i++) {
    const Type *type = in->call->types[i];
    if (type->dtype == dtype && !type->partial && type_has_dims(type, dims))
      return type;
  }
  Type *type = type_create(in->module->arena, dtype, dims->n);
  for (int i = 0; i < dims->n; i++) type->dims[i] = dims->items[i];
  return type;
}

int infer_one(Infer *in, DType dtype, const Dims *dims,
              const Type **out_types) {
  out_types[0] = infer_result(in, dtype, dims);
  return out_types[0] ? 1 : -1;
}
