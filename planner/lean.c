/*
 * lean.c -- searches for the plan with the fewest bytes on a rank.
 *
 *     limit 10 GB     prices 12 GB of 10 GB, 11 GB of 10 GB, 9 GB of 10 GB
 *     the search is told     12 GB of 0,     11 GB of 0,     9 GB of 0
 *
 * A search orders plans that do not fit by the bytes that are missing.  In no
 * memory at all, no plan fits, and the bytes that are missing are all that a
 * plan takes.  Once a plan fits into the real memory, the search is stopped.
 */
#include "planner/search.h"

typedef struct Lean {
  const SearchHost *host;
  Bytes limit, memory;
  bool ends_early, has_one;
  int n_fit;
} Lean;

static bool fits(Lean *lean, const CandidatePrice *price) {
  Bytes memory = lean->limit > 0 ? lean->limit : price->memory;
  if (price->is_legal) lean->memory = memory;
  return price->is_legal && price->peak <= memory;
}

static void price_without_memory(void *user, const CandidateList *list,
                                 CandidatePrice *out) {
  Lean *lean = user;
  lean->host->price(lean->host->user, list, out);
  for (int i = 0; i < list->n; i++) {
    bool is_one = fits(lean, &out[i]);
    lean->n_fit += is_one && !list->is_whole;
    lean->has_one |= is_one;
    out[i].memory = 0;
  }
}

static bool is_over(void *user) {
  const Lean *lean = user;
  return (lean->ends_early && lean->has_one) ||
         lean->host->is_stopped(lean->host->user);
}

static void progress(void *user, int n_priced, int of,
                     const CandidatePrice *best) {
  const Lean *lean = user;
  if (lean->host->progress)
    lean->host->progress(lean->host->user, n_priced, of, best);
}

static SearchResult search(const SearchInput *input, Lean *lean) {
  SearchHost host = {.price = price_without_memory,
                     .is_stopped = is_over,
                     .progress = progress,
                     .user = lean};
  SearchInput own = *input;
  own.host = &host;
  own.is_lean = true;
  SearchResult out = plan_search(&own);
  out.best.price.memory = out.plain.memory = lean->memory;
  out.has_plan = out.best.text && fits(lean, &out.best.price);
  out.is_stopped = lean->host->is_stopped(lean->host->user);
  out.n_fit = lean->n_fit;
  return out;
}

SearchResult plan_search_lean(const SearchInput *input, Bytes limit) {
  Lean lean = {.host = input->host, .limit = limit, .ends_early = true};
  SearchResult out = search(input, &lean);
  /* A program may need more than what the search took for it. */
  if (out.has_plan || !lean.has_one || out.is_stopped) return out;
  lean = (Lean){.host = input->host, .limit = limit};
  return search(input, &lean);
}
