/*
 * verify_unroll.c -- whether a final graph is the unrolling of a shorter one,
 * as declared in verify_unroll.h.
 *
 * Both graphs become lists of atoms: fused bodies are written out, `after`,
 * which says an order alone, is left out, an
 * all_reduce of several parts is one atom for each, outputs are atoms, and a
 * tree of additions is one atom with many operands.  The hash of an atom is
 * that of its operator, attributes and types and of its operands: an operand of
 * the same block by its own hash, one of another block or of none by a hash of
 * what it is computed from within that block.  A value of constants alone
 * is in no block, because equal constants are merged.  So equal hashes in two
 * blocks mean that their graphs are equal, and that they are connected to equal
 * values.
 *
 * A node that adds up values of all blocks, as the norm does, must add equal
 * values of every middle block.
 */
#include "verify/verify_unroll.h"

#include <stdlib.h>
#include <string.h>

enum { OTHER_BLOCK = 5 }; /* in the inner hash */

typedef struct UnrollAtom {
  const Node *node; /* NULL: an output */
  const char *path;
  const GraphOutput *output;
  int run, block; /* -1: outside of all runs */
  int result;     /* of a collective */
  int n_inputs;
  const int *inputs; /* atoms, with the result that is read */
  const int *results;
  bool is_joined;   /* an addition that only another addition reads */
  bool is_constant; /* of constants and scalar inputs, as the step:
                       in no block */
  uint64_t key, inner, full;
} UnrollAtom;

typedef struct Unroll {
  Arena *arena;
  const Graph *graph;
  const Repeat *repeats;
  int n_repeats;
  bool is_folded; /* has one middle block */
  VEC(UnrollAtom) atoms;
} Unroll;

/* An atom and which of its results. */
typedef struct AtomValue {
  int atom, result;
} AtomValue;

static uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t both[2] = {a, b};
  return hash_bytes(both, sizeof both, 7);
}

/* ---- keys ---- */

/* The path without the index of its block. */
static uint64_t path_key(const Unroll *u, int run, const char *path) {
  if (run < 0) return hash_bytes(path, strlen(path), 1);
  const char *name = u->repeats[run].name;
  size_t n = strlen(name);
  const char *at = path;
  while (*at && (strncmp(at, name, n) || at[n] != '[')) at++;
  const char *rest = *at ? strchr(at, ']') : NULL;
  if (!rest) return hash_bytes(path, strlen(path), 1);
  return hash_bytes(rest, strlen(rest),
                    hash_bytes(path, (size_t)(at - path), 2));
}

static uint64_t attr_key(const Unroll *u, int run, const Attr *attr) {
  uint64_t key = mixed(attr->key, (uint64_t)attr->n);
  switch (attr_kind(attr->key)) {
  case ATTRKIND_TEXT: return mixed(key, path_key(u, run, attr->name));
  case ATTRKIND_NAME: return hash_bytes(attr->name, strlen(attr->name), key);
  case ATTRKIND_NAMES:
    for (int i = 0; i < attr->n; i++)
      key = hash_bytes(attr->names[i], strlen(attr->names[i]), key);
    return key;
  case ATTRKIND_INT: return mixed(key, (uint64_t)attr->integer);
  case ATTRKIND_INTS:
    return hash_bytes(attr->integers, (size_t)attr->n * sizeof(int64_t), key);
  case ATTRKIND_FLOAT: return hash_bytes(&attr->real, sizeof attr->real, key);
  }
  UNREACHABLE();
}

static uint64_t type_key(const Type *type) {
  uint64_t key = mixed(type->dtype, mixed(type->partial, type->partial_kind));
  for (int d = 0; d < type->rank; d++) {
    const Dim *dim = &type->dims[d];
    key = hash_bytes(dim->name, strlen(dim->name), key);
    key = mixed(key, mixed((uint64_t)dim->size, dim->split));
  }
  return key;
}

/* Its operands are joined to be sent together, and each is an atom. */
static bool is_parted(const Node *node) {
  return op_has(node->op, OP_FLAG_joinable);
}

/* It says an order, which input of the graph the node is, or something about
 * each part. */
static bool is_left_out(AttrKey key, bool is_part) {
  return key == ATTR_bucket || key == ATTR_index ||
         (is_part && (key == ATTR_dim || key == ATTR_dims));
}

/* Operator, attributes and types. */
static uint64_t node_key(const Unroll *u, const UnrollAtom *atom) {
  const Node *node = atom->node;
  bool is_part = is_parted(node);
  uint64_t key = mixed(node->op, node->phase);
  for (int i = 0; i < node->n_attrs; i++)
    if (!is_left_out(node->attrs[i].key, is_part))
      key = mixed(key, attr_key(u, atom->run, &node->attrs[i]));
  Name dim = is_part ? node_part_dim(node, atom->result) : NULL;
  if (dim) key = hash_bytes(dim, strlen(dim), key);
  for (int r = 0; r < node->n_results; r++)
    if (!is_part || r == atom->result)
      key = mixed(key, type_key(node->types[r]));
  return node->body ? mixed(key, graph_hash(node->body)) : key;
}

/* ---- atoms ---- */

/* Which run and block a path is in. */
static void place_atom(const Unroll *u, UnrollAtom *atom, const char *path) {
  atom->run = atom->block = -1;
  for (int i = 0; i < u->n_repeats && atom->block < 0; i++) {
    atom->block = repeat_index(&u->repeats[i], path);
    if (atom->block >= 0) atom->run = i;
  }
}

/* An atom that no path places is where all of its operands are, if they are in
 * one block: casts have paths of their own. */
static void place_by_operands(const Unroll *u, UnrollAtom *atom) {
  bool is_first = true;
  for (int i = 0; i < atom->n_inputs; i++) {
    const UnrollAtom *operand = &u->atoms.data[atom->inputs[i]];
    if (operand->is_constant) continue;
    if (!is_first &&
        (operand->run != atom->run || operand->block != atom->block)) {
      atom->run = atom->block = -1;
      return;
    }
    atom->run = operand->run;
    atom->block = operand->block;
    is_first = false;
  }
}

static int add_atom(Unroll *u, const Node *node, const char *path, int result,
                    const AtomValue *inputs, int n) {
  UnrollAtom atom = {
      .node = node, .path = path, .result = result, .n_inputs = n};
  int *ids = ARENA_ARRAY(u->arena, int, n),
      *results = ARENA_ARRAY(u->arena, int, n);
  for (int i = 0; i < n; i++) {
    ids[i] = inputs[i].atom;
    results[i] = inputs[i].result;
  }
  atom.inputs = ids;
  atom.results = results;
  atom.is_constant =
      node && node->op != OP_input && !op_is(node->op, OPCLASS_random);
  for (int i = 0; i < n; i++)
    atom.is_constant &= u->atoms.data[ids[i]].is_constant;
  place_atom(u, &atom, atom.is_constant ? "" : path);
  if (atom.run < 0 && !atom.is_constant) place_by_operands(u, &atom);
  if (node) atom.key = node_key(u, &atom);
  vec_push(u->arena, &u->atoms, atom);
  return u->atoms.n - 1;
}

static void add_graph_atoms(Unroll *u, const Graph *graph,
                            const AtomValue *given, AtomValue *out_outputs);

static void add_node_atoms(Unroll *u, const Graph *graph, int id,
                           AtomValue **values) {
  const Node *node = graph->nodes.data[id];
  AtomValue *inputs = ARENA_ARRAY(u->arena, AtomValue, node->n_inputs);
  values[id] = ARENA_ARRAY(u->arena, AtomValue, node->n_results);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = values[node->inputs[i].node][node->inputs[i].result];
  if (node->op == OP_fused) {
    add_graph_atoms(u, node->body, inputs, values[id]);
    return;
  }
  if (node->op == OP_after) {
    values[id][0] = inputs[0];
    return;
  }
  Name path = graph_path(graph, id);
  bool has_parts = is_parted(node);
  int atom =
      has_parts ? -1 : add_atom(u, node, path, 0, inputs, node->n_inputs);
  for (int r = 0; r < node->n_results; r++) {
    if (!has_parts) {
      values[id][r] = (AtomValue){atom, r};
      continue;
    }
    /* It is where its operand is: its path is that of its first part. */
    int part = add_atom(u, node, path, r, &inputs[r], 1);
    UnrollAtom *own = &u->atoms.data[part];
    own->run = u->atoms.data[inputs[r].atom].run;
    own->block = u->atoms.data[inputs[r].atom].block;
    values[id][r] = (AtomValue){part, 0};
  }
}

static void add_input_atom(Unroll *u, const Graph *graph, const Node *node,
                           AtomValue *out) {
  const GraphInput *input = &graph->inputs.data[node_int(node, ATTR_index, 0)];
  int id = add_atom(u, node, input->path, 0, NULL, 0);
  UnrollAtom *atom = &u->atoms.data[id];
  uint64_t path = path_key(u, atom->run, input->path);
  atom->key = mixed(atom->key, mixed(input->role, path));
  atom->is_constant = atom->run < 0 && node->types[0]->rank == 0;
  *out = (AtomValue){id, 0};
}

/* The atoms of a graph whose inputs are `given`; NULL: they are atoms. */
static void add_graph_atoms(Unroll *u, const Graph *graph,
                            const AtomValue *given, AtomValue *out_outputs) {
  AtomValue **values = ARENA_ARRAY(u->arena, AtomValue *, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_input) {
      add_node_atoms(u, graph, id, values);
      continue;
    }
    values[id] = ARENA_ARRAY(u->arena, AtomValue, 1);
    if (given)
      values[id][0] = given[node_int(node, ATTR_index, 0)];
    else
      add_input_atom(u, graph, node, &values[id][0]);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    AtomValue value = values[output->value.node][output->value.result];
    if (!given) {
      int id = add_atom(u, NULL, output->path, 0, &value, 1);
      UnrollAtom *atom = &u->atoms.data[id];
      atom->output = output;
      atom->key = mixed(output->role, path_key(u, atom->run, output->path));
    } else {
      out_outputs[i] = value;
    }
  }
}

/* ---- sums ---- */

static bool is_addition(const UnrollAtom *atom) {
  return atom->node && atom->node->op == OP_add;
}

/* An addition is a part of the one that alone reads it. */
static void join_additions(Unroll *u) {
  int *readers = ARENA_ARRAY(u->arena, int, u->atoms.n);
  bool *is_added = ARENA_ARRAY(u->arena, bool, u->atoms.n);
  for (int id = 0; id < u->atoms.n; id++) {
    const UnrollAtom *atom = &u->atoms.data[id];
    for (int i = 0; i < atom->n_inputs; i++) {
      readers[atom->inputs[i]]++;
      is_added[atom->inputs[i]] |= is_addition(atom);
    }
  }
  for (int id = 0; id < u->atoms.n; id++)
    u->atoms.data[id].is_joined =
        is_addition(&u->atoms.data[id]) && readers[id] == 1 && is_added[id];
}

/* Blocks of a run that a sum has terms of: the first two, and how many. */
typedef struct SummedBlocks {
  int run, n, blocks[2];
} SummedBlocks;

static void find_summed_blocks(const Unroll *u, const UnrollAtom *at,
                               SummedBlocks *out) {
  for (int i = 0; i < at->n_inputs; i++) {
    const UnrollAtom *atom = &u->atoms.data[at->inputs[i]];
    if (atom->is_joined) {
      find_summed_blocks(u, atom, out);
      continue;
    }
    bool is_known = atom->run != out->run;
    for (int k = 0; k < out->n && k < 2; k++)
      is_known |= out->blocks[k] == atom->block;
    if (is_known) continue;
    if (out->n < 2) out->blocks[out->n] = atom->block;
    out->n++;
  }
}

/* A sum over three blocks or more, as the norm of a stage, is in none of them,
 * though its path may be that of its last term. */
static void move_sums(Unroll *u) {
  for (int id = 0; id < u->atoms.n; id++) {
    UnrollAtom *atom = &u->atoms.data[id];
    if (!is_addition(atom) || atom->is_joined || atom->run < 0) continue;
    SummedBlocks summed = {.run = atom->run};
    find_summed_blocks(u, atom, &summed);
    if (summed.n > 2) atom->run = atom->block = -1;
  }
}

/* ---- hashes ---- */

/* Where a block is in its run: the middle ones are one. */
static int block_place(const Unroll *u, int run, int block) {
  if (run < 0) return 0;
  const Repeat *repeat = &u->repeats[run];
  return block == repeat->first ? 1 : block == repeat->last ? 3 : 2;
}

/* From 0 on, without the middle blocks that are not there. */
static int block_number(const Unroll *u, int run, int block) {
  const Repeat *repeat = &u->repeats[run];
  bool is_last = u->is_folded && block == repeat->last;
  return is_last ? 2 : block - repeat->first;
}

/* How a reader sees an operand in another block. */
static uint64_t seen_from(const Unroll *u, const UnrollAtom *reader,
                          const UnrollAtom *atom) {
  if (reader->run >= 0 && reader->run == atom->run)
    return mixed(11, (uint64_t)(block_number(u, atom->run, atom->block) -
                                block_number(u, atom->run, reader->block)));
  return (uint64_t)(20 + 4 * atom->run +
                    block_place(u, atom->run, atom->block));
}

/* The inner hash knows nothing of other blocks, so that a block beside the last
 * one sees what the others see. */
static uint64_t operand_hash(const Unroll *u, const UnrollAtom *reader, int i,
                             bool is_inner) {
  const UnrollAtom *atom = &u->atoms.data[reader->inputs[i]];
  bool is_own = atom->is_constant ||
                (atom->run == reader->run && atom->block == reader->block);
  uint64_t hash;
  if (is_own)
    hash = is_inner ? atom->inner : atom->full;
  else if (is_inner)
    hash = OTHER_BLOCK;
  else
    hash = mixed(atom->inner, seen_from(u, reader, atom));
  return mixed(hash, (uint64_t)reader->results[i]);
}

/* Hashes of the terms of a sum, by block of a run. */
typedef struct SumTerms {
  uint64_t other, *of_block;
} SumTerms;

static void add_terms(const Unroll *u, const UnrollAtom *root,
                      const UnrollAtom *at, bool is_inner, int run,
                      SumTerms *terms) {
  for (int i = 0; i < at->n_inputs; i++) {
    const UnrollAtom *atom = &u->atoms.data[at->inputs[i]];
    if (atom->is_joined) {
      add_terms(u, root, atom, is_inner, run, terms);
      continue;
    }
    UnrollAtom reader = *root;
    reader.inputs = &at->inputs[i];
    reader.results = &at->results[i];
    uint64_t hash = operand_hash(u, &reader, 0, is_inner);
    bool is_middle = root->run < 0 && atom->run >= 0 &&
                     block_place(u, atom->run, atom->block) == 2;
    if (!is_middle)
      terms->other += hash;
    else if (atom->run == run)
      terms->of_block[atom->block - u->repeats[run].first] += hash;
  }
}

/* The terms of each middle block must be those of the first of them. */
static uint64_t sum_hash(const Unroll *u, const UnrollAtom *atom,
                         bool is_inner) {
  uint64_t hash = atom->key;
  int n = atom->run < 0 ? u->n_repeats : 0;
  for (int run = n ? 0 : -1; run < n; run++) {
    const Repeat *repeat = run < 0 ? NULL : &u->repeats[run];
    int n_blocks = repeat ? repeat->last - repeat->first + 1 : 0;
    Arena *scratch = arena_beside(u->arena);
    SumTerms terms = {.of_block = ARENA_ARRAY(scratch, uint64_t, n_blocks)};
    add_terms(u, atom, atom, is_inner, run, &terms);
    uint64_t middle = n_blocks > 1 ? terms.of_block[1] : 0;
    for (int i = 2; i + 1 < n_blocks && !u->is_folded; i++)
      if (terms.of_block[i] != middle) hash = mixed(hash, (uint64_t)i);
    hash = mixed(hash, mixed(terms.other, middle));
    arena_destroy(scratch);
  }
  return hash;
}

static uint64_t atom_hash(const Unroll *u, const UnrollAtom *atom,
                          bool is_inner) {
  if (is_addition(atom)) return sum_hash(u, atom, is_inner);
  uint64_t hash = atom->key;
  for (int i = 0; i < atom->n_inputs; i++)
    hash = mixed(hash, operand_hash(u, atom, i, is_inner));
  return hash;
}

static void hash_atoms(Unroll *u) {
  for (int id = 0; id < u->atoms.n; id++) {
    UnrollAtom *atom = &u->atoms.data[id];
    if (!atom->is_joined) atom->inner = atom_hash(u, atom, true);
  }
  for (int id = 0; id < u->atoms.n; id++) {
    UnrollAtom *atom = &u->atoms.data[id];
    if (!atom->is_joined) atom->full = atom_hash(u, atom, false);
  }
}

static Unroll make_unroll(Arena *arena, const Graph *graph,
                          const Repeat *repeats, int n, bool is_folded) {
  Unroll u = {.arena = arena,
              .graph = graph,
              .repeats = repeats,
              .n_repeats = n,
              .is_folded = is_folded};
  add_graph_atoms(&u, graph, NULL, NULL);
  join_additions(&u);
  move_sums(&u);
  hash_atoms(&u);
  return u;
}

/* ---- comparing ---- */

static int compare_hashes(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

typedef struct AtomHashes {
  uint64_t *data;
  int n;
} AtomHashes;

static bool is_in(const UnrollAtom *atom, int run, int block) {
  return atom->run == run && atom->block == block && !atom->is_joined &&
         !atom->is_constant;
}

static uint64_t hash_of(const UnrollAtom *atom, bool is_inner) {
  return is_inner ? atom->inner : atom->full;
}

/* The sorted hashes of a block, or of what is outside. */
static AtomHashes hashes_of(const Unroll *u, int run, int block,
                            bool is_inner) {
  AtomHashes hashes = {ARENA_ARRAY(u->arena, uint64_t, u->atoms.n), 0};
  for (int id = 0; id < u->atoms.n; id++)
    if (is_in(&u->atoms.data[id], run, block))
      hashes.data[hashes.n++] = hash_of(&u->atoms.data[id], is_inner);
  qsort(hashes.data, (size_t)hashes.n, sizeof(uint64_t), compare_hashes);
  return hashes;
}

static bool has_hash(const AtomHashes *hashes, uint64_t hash) {
  return bsearch(&hash, hashes->data, (size_t)hashes->n, sizeof hash,
                 compare_hashes);
}

static const char *describe_atom(const Unroll *u, const UnrollAtom *atom) {
  return arena_printf(
      u->arena, "%s (%s)", atom->path && *atom->path ? atom->path : "a value",
      atom->output ? "an output" : op_info(atom->node->op)->name);
}

/* The first atom of a block of `u` that `like` does not have; NULL: they have
 * the same. */
static const char *block_difference(const Unroll *u, int run, int block,
                                    const Unroll *like, int like_block,
                                    bool is_inner) {
  AtomHashes own = hashes_of(u, run, block, is_inner);
  AtomHashes wanted = hashes_of(like, run, like_block, is_inner);
  if (own.n == wanted.n &&
      (own.n == 0 ||
       !memcmp(own.data, wanted.data, (size_t)own.n * sizeof(uint64_t))))
    return NULL;
  for (int id = 0; id < u->atoms.n; id++) {
    const UnrollAtom *atom = &u->atoms.data[id];
    if (is_in(atom, run, block) && !has_hash(&wanted, hash_of(atom, is_inner)))
      return describe_atom(u, atom);
  }
  for (int id = 0; id < like->atoms.n; id++) {
    const UnrollAtom *atom = &like->atoms.data[id];
    if (is_in(atom, run, like_block) &&
        !has_hash(&own, hash_of(atom, is_inner)))
      return describe_atom(like, atom);
  }
  return arena_printf(u->arena, "%d nodes in place of %d", own.n, wanted.n);
}

static const char *run_difference(const Unroll *whole, const Unroll *folded,
                                  int run, bool is_inner) {
  const Repeat *repeat = &whole->repeats[run];
  const char *difference = NULL;
  for (int i = repeat->first; i <= repeat->last && !difference; i++) {
    bool is_middle = i > repeat->first && i < repeat->last;
    difference = block_difference(whole, run, i, folded,
                                  is_middle ? repeat->first + 1 : i, is_inner);
  }
  return difference;
}

const char *unroll_difference(Arena *arena, const Graph *whole,
                              const Graph *folded, const Repeat *repeats,
                              int n) {
  Arena *scratch = arena_beside(arena);
  Unroll a = make_unroll(scratch, whole, repeats, n, false);
  Unroll b = make_unroll(scratch, folded, repeats, n, true);
  const char *difference = NULL;
  /* A fault changes what its block is computed from, and then what others
   * read. */
  for (int i = 0; i < 2 * n && !difference; i++)
    difference = run_difference(&a, &b, i % n, i < n);
  if (!difference) difference = block_difference(&a, -1, -1, &b, -1, false);
  if (difference) difference = arena_strdup(arena, difference);
  arena_destroy(scratch);
  return difference;
}
