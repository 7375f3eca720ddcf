/*
 * attr.c -- builds sets of attributes and reads the attributes of nodes;
 * attrs.def lists their keys and kinds.
 */
#include "ir/ir.h"

#include <string.h>

static const struct {
  const char *name;
  AttrKind kind;
} infos[N_ATTRS] = {
#define ATTR(key, kind) [ATTR_##key] = {#key, ATTRKIND_##kind},
#include "ir/attrs.def"
};

const char *attr_name(AttrKey key) {
  ASSERT((unsigned)key < N_ATTRS);
  return infos[key].name;
}

AttrKind attr_kind(AttrKey key) {
  ASSERT((unsigned)key < N_ATTRS);
  return infos[key].kind;
}

bool attr_find(const char *name, AttrKey *out_key) {
  for (int i = 0; i < N_ATTRS; i++) {
    if (strcmp(infos[i].name, name) == 0) {
      *out_key = (AttrKey)i;
      return true;
    }
  }
  return false;
}

/* ---- building ---- */

static Attr *slot_for(Attrs *attrs, AttrKey key) {
  Attr *attr = NULL;
  for (int i = 0; i < attrs->n; i++) {
    if (attrs->items[i].key == key) attr = &attrs->items[i];
  }
  if (!attr) {
    ASSERT(attrs->n < ARRAY_LENGTH(attrs->items));
    attr = &attrs->items[attrs->n++];
  }
  *attr = (Attr){.key = key, .n = 1};
  return attr;
}

void attrs_name(Attrs *attrs, AttrKey key, Name name) {
  ASSERT(attr_kind(key) == ATTRKIND_NAME || attr_kind(key) == ATTRKIND_TEXT);
  slot_for(attrs, key)->name = name;
}

void attrs_names(Attrs *attrs, AttrKey key, const Name *names, int n) {
  ASSERT(attr_kind(key) == ATTRKIND_NAMES && n >= 0);
  Attr *attr = slot_for(attrs, key);
  attr->n = n;
  attr->names = names;
}

void attrs_int(Attrs *attrs, AttrKey key, int64_t value) {
  ASSERT(attr_kind(key) == ATTRKIND_INT);
  slot_for(attrs, key)->integer = value;
}

void attrs_ints(Attrs *attrs, AttrKey key, const int64_t *values, int n) {
  ASSERT(attr_kind(key) == ATTRKIND_INTS && n >= 0);
  Attr *attr = slot_for(attrs, key);
  attr->n = n;
  attr->integers = values;
}

void attrs_float(Attrs *attrs, AttrKey key, double value) {
  ASSERT(attr_kind(key) == ATTRKIND_FLOAT);
  slot_for(attrs, key)->real = value;
}

/* ---- reading ---- */

static const Attr *find_key(const Attr *attrs, int n, AttrKey key) {
  for (int i = 0; i < n; i++) {
    if (attrs[i].key == key) return &attrs[i];
  }
  return NULL;
}

const Attr *attrs_find(const Attrs *attrs, AttrKey key) {
  return attrs ? find_key(attrs->items, attrs->n, key) : NULL;
}

bool attr_equal(const Attr *a, const Attr *b) {
  static const AttrKind kinds[] = {
#define ATTR(key, kind) ATTRKIND_##kind,
#include "ir/attrs.def"
  };
  if (a->key != b->key || a->n != b->n) return false;
  switch (kinds[a->key]) {
  case ATTRKIND_NAME:
  case ATTRKIND_TEXT: return a->name == b->name;
  case ATTRKIND_NAMES:
    return memcmp(a->names, b->names, (size_t)a->n * sizeof *a->names) == 0;
  case ATTRKIND_INT: return a->integer == b->integer;
  case ATTRKIND_INTS:
    return memcmp(a->integers, b->integers,
                  (size_t)a->n * sizeof *a->integers) == 0;
  case ATTRKIND_FLOAT: return memcmp(&a->real, &b->real, sizeof a->real) == 0;
  }
  UNREACHABLE();
}

const Attr *node_attr(const Node *node, AttrKey key) {
  return find_key(node->attrs, node->n_attrs, key);
}

bool node_has(const Node *node, AttrKey key) {
  return node_attr(node, key) != NULL;
}

Name node_name(const Node *node, AttrKey key) {
  const Attr *attr = node_attr(node, key);
  return attr ? attr->name : NULL;
}

int64_t node_int(const Node *node, AttrKey key, int64_t if_absent) {
  const Attr *attr = node_attr(node, key);
  return attr ? attr->integer : if_absent;
}

double node_float(const Node *node, AttrKey key, double if_absent) {
  const Attr *attr = node_attr(node, key);
  return attr ? attr->real : if_absent;
}

const Name *node_names(const Node *node, AttrKey key, int *out_n) {
  const Attr *attr = node_attr(node, key);
  *out_n = attr ? attr->n : 0;
  return attr ? attr->names : NULL;
}

Name node_part_dim(const Node *node, int part) {
  int n = 0;
  if (!node_has(node, ATTR_dims)) return node_name(node, ATTR_dim);
  const Name *dims = node_names(node, ATTR_dims, &n);
  return part < n ? dims[part] : NULL;
}

const int64_t *node_ints(const Node *node, AttrKey key, int *out_n) {
  const Attr *attr = node_attr(node, key);
  *out_n = attr ? attr->n : 0;
  return attr ? attr->integers : NULL;
}

int64_t node_int_at(const Node *node, AttrKey key, int i, int64_t otherwise) {
  int n;
  const int64_t *items = node_ints(node, key, &n);
  return i < n ? items[i] : otherwise;
}
