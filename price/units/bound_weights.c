/*
 * bound_weights.c -- prints and reads the weights of a bound.
 */
#include "price/units/bound_weights.h"

#include <stdlib.h>
#include <string.h>

typedef struct NamedMeaning {
  const char *name, *meaning;
} NamedMeaning;

static const NamedMeaning weights_info[] = {
#define BOUND_WEIGHT(name, meaning) {#name, meaning},
#include "price/units/bound_weights.def"
};

static const NamedMeaning restrictions_info[] = {
#define RESTRICTION(name, is_in_all, meaning) {#name, meaning},
#include "price/units/restrictions.def"
};

const BoundWeight bound_extremes[N_BOUND_EXTREMES][2] = {
    {BOUND_forward_stream, BOUND_backward_stream},
    {BOUND_forward_stream, BOUND_backward_chain},
    {BOUND_forward_stream, BOUND_backward_link},
    {BOUND_forward_link, BOUND_backward_stream},
    {BOUND_forward_link, BOUND_backward_chain},
    {BOUND_forward_link, BOUND_backward_link},
    {BOUND_all_link, BOUND_all_link}};

void bound_set_extreme(BoundWeights *weights, int extreme) {
  memset(weights->of, 0, sizeof weights->of);
  for (int i = 0; i < 2; i++)
    weights->of[bound_extremes[extreme][i]] = BOUND_ONE;
  weights->per_byte = 0;
}

bool bound_weights_suit(const BoundWeights *weights, int64_t groups) {
  return groups < 2 ||
         weights->of[BOUND_forward_link] == weights->of[BOUND_backward_link];
}

const char *bound_weight_name(BoundWeight weight) {
  return weights_info[weight].name;
}

const char *bound_weight_meaning(BoundWeight weight) {
  return weights_info[weight].meaning;
}

const char *restriction_name(Restriction restriction) {
  return restrictions_info[restriction].name;
}

const char *restriction_meaning(Restriction restriction) {
  return restrictions_info[restriction].meaning;
}

static unsigned always(void) {
  return 0
#define RESTRICTION(name, is_in_all, meaning)                                  \
  | (unsigned)(is_in_all) << RESTRICTION_##name
#include "price/units/restrictions.def"
      ;
}

/* A restriction for each number of stages, beside those of all bounds. */
static const unsigned of_stages[] = {
    [STAGES_none] = 1u << RESTRICTION_one_stage,
    [STAGES_equal] =
        1u << RESTRICTION_equal_stages | 1u << RESTRICTION_single_cuts,
    [STAGES_any] =
        1u << RESTRICTION_any_stages | 1u << RESTRICTION_single_cuts};

unsigned restrictions_of_all(BoundStages stages) {
  return always() | of_stages[stages];
}

BoundStages restrictions_stages(unsigned restrictions) {
  if (restrictions >> RESTRICTION_any_stages & 1) return STAGES_any;
  if (restrictions >> RESTRICTION_equal_stages & 1) return STAGES_equal;
  return STAGES_none;
}

bool restrictions_suffice(unsigned restrictions) {
  BoundStages stages = restrictions_stages(restrictions);
  unsigned needed = restrictions_of_all(stages), all = 0;
  for (int i = 0; i < ARRAY_LENGTH(of_stages); i++) all |= of_stages[i];
  return (restrictions & needed) == needed &&
         !(restrictions & all & ~of_stages[stages]);
}

static bool has_link(const BoundWeights *w) {
  return w->of[BOUND_forward_link] || w->of[BOUND_backward_link] ||
         w->of[BOUND_all_link];
}

/* Weights add up to so much where they are written. */
enum { COARSE_ONE = 64 };

/* Returns how many parts of BOUND_ONE the weights are multiples of. */
static int unit_of(const BoundWeights *w) {
  for (int i = 0; i < N_BOUND_WEIGHTS; i++)
    if (w->of[i] % (BOUND_ONE / COARSE_ONE) != 0) return 1;
  return BOUND_ONE / COARSE_ONE;
}

void bound_weights_print(Text *out, const BoundWeights *weights) {
  const char *between = "";
  int unit = unit_of(weights);
  for (int i = 0; i < weights->n_kinds; i++) {
    text_printf(out, "%skind_%d ", i ? ", " : "", i);
    text_add_real(out, weights->of_kind[i]);
  }
  if (weights->n_kinds > 0) return;
  for (BoundWeight i = 0; i < N_BOUND_WEIGHTS; i++) {
    if (weights->of[i] == 0) continue;
    text_printf(out, "%s%s %d", between, bound_weight_name(i),
                weights->of[i] / unit);
    between = ", ";
  }
  if (has_link(weights)) text_printf(out, ", link %d", weights->link);
  if (weights->split >= 0) text_printf(out, ", split %d", weights->split);
  if (weights->per_byte > 0) {
    text_add(out, ", per_byte ");
    text_add_real(out, weights->per_byte);
  }
}

/* The forward pass mostly has one load: the others tell more. */
void bound_limit_print(Text *out, const BoundWeights *weights) {
  BoundWeight most = BOUND_all_link;
  for (BoundWeight i = BOUND_backward_stream; i < N_BOUND_WEIGHTS; i++)
    if (weights->of[i] > weights->of[most]) most = i;
  text_add(out, bound_weight_meaning(most));
  if (weights->per_byte > 0) text_add(out, "; the memory of a rank");
}

/* ---- reading ---- */

/* "kind_0", "kind_1": one after the other. */
static bool read_kind(const char *name, size_t n, double value,
                      BoundWeights *out) {
  static const char word[] = "kind_";
  if (n != strlen(word) + 1 || memcmp(name, word, n - 1) != 0) return false;
  if (out->n_kinds == MOST_BOUND_KINDS || name[n - 1] != '0' + out->n_kinds)
    return false;
  out->of_kind[out->n_kinds++] = value;
  return value > 0 && value <= 1;
}

/* Where the number of one setting goes. */
static bool read_setting(const char *name, size_t n, double value,
                         BoundWeights *out) {
  const NamedMeaning *info = weights_info;
  for (int i = 0; i < N_BOUND_WEIGHTS; i++)
    if (strlen(info[i].name) == n && memcmp(info[i].name, name, n) == 0) {
      out->of[i] = (int)value;
      return value >= 0 && value <= BOUND_ONE;
    }
  if (n == 4 && memcmp(name, "link", n) == 0) {
    out->link = (int)value;
  } else if (n == 5 && memcmp(name, "split", n) == 0) {
    out->split = (int)value;
  } else if (n == 8 && memcmp(name, "per_byte", n) == 0) {
    out->per_byte = value;
    return value >= 0 && value < 1e12;
  } else {
    return read_kind(name, n, value, out);
  }
  return value >= 0 && value < (1 << 20);
}

static bool adds_up(BoundWeights *w) {
  int sum = w->link + w->split + 1;
  for (int i = 0; i < N_BOUND_WEIGHTS; i++) sum += w->of[i];
  if (w->n_kinds > 0) return sum == 0 && w->per_byte == 0;
  int forward = w->of[BOUND_forward_stream] + w->of[BOUND_forward_link];
  int backward = w->of[BOUND_backward_stream] + w->of[BOUND_backward_chain] +
                 w->of[BOUND_backward_link];
  int all = forward + w->of[BOUND_all_link];
  if (forward != backward) return false;
  for (int i = 0; all == COARSE_ONE && i < N_BOUND_WEIGHTS; i++)
    w->of[i] *= BOUND_ONE / COARSE_ONE;
  return all == COARSE_ONE || all == BOUND_ONE;
}

bool bound_weights_read(const char *text, BoundWeights *out) {
  *out = (BoundWeights){.split = -1};
  for (;;) {
    while (*text == ' ') text++;
    size_t n = strcspn(text, " ,");
    char *end;
    if (n == 0 || text[n] != ' ') return false;
    double value = strtod(text + n + 1, &end);
    if (end == text + n + 1 || !read_setting(text, n, value, out)) return false;
    if (*end == 0) return adds_up(out);
    if (*end != ',') return false;
    text = end + 1;
  }
}

bool restrictions_read(const char *text, unsigned *out) {
  *out = 0;
  while (*text) {
    size_t n = strcspn(text, " ");
    int i = 0;
    while (i < N_RESTRICTIONS &&
           (strlen(restrictions_info[i].name) != n ||
            memcmp(restrictions_info[i].name, text, n) != 0))
      i++;
    if (i == N_RESTRICTIONS && n > 0) return false;
    if (n > 0) *out |= 1u << i;
    text += n + (text[n] == ' ');
  }
  return true;
}
