/*
 * searches.c -- finds a search by its name: the rows of searches.def.
 */
#include "planner/search.h"

#include <string.h>

static const SearchInfo searches[] = {
#define SEARCH(name, run, meaning) {#name, run, meaning},
#include "planner/searches.def"
};

int search_count(void) {
  return ARRAY_LENGTH(searches);
}

const SearchInfo *search_info(int row) {
  ASSERT(row >= 0 && row < ARRAY_LENGTH(searches));
  return &searches[row];
}

int search_find(const char *name) {
  for (int i = 0; i < ARRAY_LENGTH(searches); i++)
    if (strcmp(searches[i].name, name) == 0) return i;
  return -1;
}

SearchResult plan_search(const SearchInput *input) {
  return searches[input->search].run(input);
}
