/*
 * strategy_memo.c -- remembers which strategy an operator got, for the next one
 * that is equal.
 *
 * Layers repeat: of the operators of a deep model that are asked about, nearly
 * all differ from an earlier one in their paths alone.  The key of a choice has
 * all that it reads of a node: operator, attributes, the logical types, the
 * placements of the operands and those that the rule wants, and how ZeRO
 * spreads the parameters among the operands.  Names are interned, so their
 * addresses stand for them.
 */
#include "passes/spmd/strategy.h"

#include <string.h>

typedef struct Remembered {
  uint64_t hash;
  int64_t *key;
  int n_key;
  bool is_found;
  AxisSet positions;
  const Type **wanted;
} Remembered;

struct StrategyMemo {
  Arena *arena;
  Remembered *slots; /* a power of two, at most half of them used */
  int n_slots, n_used;
  VEC(int64_t) key; /* of the operator at hand */
};

StrategyMemo *strategy_memo_create(Arena *arena) {
  StrategyMemo *memo = ARENA_NEW(arena, StrategyMemo);
  memo->arena = arena;
  memo->n_slots = 64;
  memo->slots = ARENA_ARRAY(arena, Remembered, memo->n_slots);
  return memo;
}

/* ---- keys ---- */

static void add_int(StrategyMemo *memo, int64_t value) {
  vec_push(memo->arena, &memo->key, value);
}

static void add_address(StrategyMemo *memo, const void *address) {
  add_int(memo, (int64_t)(intptr_t)address);
}

static void add_type(StrategyMemo *memo, const Type *type) {
  add_int(memo, (int64_t)type->dtype << 32 | type->rank << 16 |
                    type->partial << 8 |
                    (type->partial ? (int)type->partial_kind : 0));
  for (int d = 0; d < type->rank; d++) {
    add_address(memo, type->dims[d].name);
    add_int(memo, type->dims[d].size);
    add_int(memo, type->dims[d].split);
  }
}

static void add_attr(StrategyMemo *memo, const Attr *attr) {
  add_int(memo, (int64_t)attr->key << 32 | attr->n);
  switch (attr_kind(attr->key)) {
  case ATTRKIND_NAME:
  case ATTRKIND_TEXT: add_address(memo, attr->name); break;
  case ATTRKIND_NAMES:
    for (int i = 0; i < attr->n; i++) add_address(memo, attr->names[i]);
    break;
  case ATTRKIND_INT: add_int(memo, attr->integer); break;
  case ATTRKIND_INTS:
    for (int i = 0; i < attr->n; i++) add_int(memo, attr->integers[i]);
    break;
  case ATTRKIND_FLOAT: {
    int64_t bits;
    memcpy(&bits, &attr->real, sizeof bits);
    add_int(memo, bits);
    break;
  }
  }
}

static void make_key(StrategyMemo *memo, const StrategyQuestion *question) {
  const Node *node = question->node;
  memo->key.n = 0;
  add_int(memo,
          (int64_t)node->op << 32 | node->n_inputs << 16 | node->n_results);
  for (int i = 0; i < node->n_attrs; i++) add_attr(memo, &node->attrs[i]);
  for (int r = 0; r < node->n_results; r++) add_type(memo, node->types[r]);
  for (int i = 0; i < node->n_inputs; i++) {
    add_type(memo, graph_type(question->graph, node->inputs[i]));
    add_type(memo, question->have[i]);
    add_type(memo, question->rule[i]);
    add_int(memo, question->zero_axes[i]);
  }
}

/* ---- the table ---- */

static Remembered *find_slot(Remembered *slots, int n_slots, uint64_t hash,
                             const int64_t *key, int n_key) {
  size_t bytes = (size_t)n_key * sizeof *key;
  for (uint64_t at = hash;; at++) {
    Remembered *slot = &slots[at & (uint64_t)(n_slots - 1)];
    bool is_it = slot->key && slot->hash == hash && slot->n_key == n_key &&
                 memcmp(slot->key, key, bytes) == 0;
    if (is_it || !slot->key) return slot;
  }
}

static void grow_slots(StrategyMemo *memo) {
  int n = memo->n_slots * 2;
  Remembered *slots = ARENA_ARRAY(memo->arena, Remembered, n);
  for (int i = 0; i < memo->n_slots; i++) {
    const Remembered *old = &memo->slots[i];
    if (old->key) *find_slot(slots, n, old->hash, old->key, old->n_key) = *old;
  }
  memo->slots = slots;
  memo->n_slots = n;
}

static Remembered *slot_of(StrategyMemo *memo,
                           const StrategyQuestion *question) {
  make_key(memo, question);
  uint64_t hash = hash_bytes(memo->key.data,
                             (size_t)memo->key.n * sizeof *memo->key.data, 0);
  Remembered *slot =
      find_slot(memo->slots, memo->n_slots, hash, memo->key.data, memo->key.n);
  slot->hash = hash;
  return slot;
}

bool strategy_memo_find(StrategyMemo *memo, const StrategyQuestion *question,
                        StrategyAnswer *out) {
  const Remembered *slot = slot_of(memo, question);
  if (!slot->key) return false;
  *out = (StrategyAnswer){slot->is_found, slot->positions, slot->wanted};
  return true;
}

void strategy_memo_put(StrategyMemo *memo, const StrategyQuestion *question,
                       const StrategyAnswer *answer) {
  if (2 * memo->n_used >= memo->n_slots) grow_slots(memo);
  Remembered *slot = slot_of(memo, question);
  ASSERT(!slot->key);
  slot->n_key = memo->key.n;
  slot->key = arena_copy(memo->arena, memo->key.data,
                         (size_t)memo->key.n * sizeof *memo->key.data);
  slot->is_found = answer->is_found;
  slot->positions = answer->positions;
  slot->wanted = answer->wanted;
  memo->n_used++;
}
