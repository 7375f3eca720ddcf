/*
 * link.c -- how much of the links of a level one member gets while others send.
 *
 * Three bounds hold, and a member gets the least of them:
 *
 *   port     what its own links carry
 *   uplinks  its share of what all members together can send
 *   cut      when everybody sends to everybody, its share of what lies between
 *            the two halves of the members
 *
 * link_kinds.def says which of them a kind of link has.
 */
#include "ir/cluster/cluster.h"

#include <string.h>

/* A product of three quantities; only the result is stored. */
__extension__ typedef unsigned __int128 LinkWide;

const LinkKindInfo *link_kind_info(LinkKind kind) {
  enum { yes = 1, no = 0 };
  static const LinkKindInfo rows[] = {
#define LINK_KIND(name, port, cut, uplinks, rule)                              \
  {#name, PORT_##port, CUT_##cut, uplinks, rule},
#include "ir/cluster/link_kinds.def"
  };
  return &rows[kind];
}

bool link_kind_find(const char *name, LinkKind *out) {
  for (int i = 0; i < N_LINK_KINDS; i++) {
    if (strcmp(link_kind_info((LinkKind)i)->name, name) != 0) continue;
    *out = (LinkKind)i;
    return true;
  }
  return false;
}

static LinkWide least(LinkWide a, LinkWide b) {
  return a < b ? a : b;
}

/* The bandwidth of the links of a member. */
static LinkWide port_bandwidth(const Level *level, int64_t n,
                               int64_t transfers) {
  LinkWide link = (LinkWide)level->link, all = link * (LinkWide)level->links;
  LinkWide used = least(all, link * (LinkWide)transfers);
  if (link_kind_info(level->kind)->port != PORT_direct) return used;
  /* The links to members that do not take part are idle. */
  LinkWide direct = all * (LinkWide)(n - 1) / (LinkWide)(level->count - 1);
  return least(used, direct < link ? link : direct);
}

/* The share of a member in what all of them send. */
static LinkWide uplink_bandwidth(const Level *level, int64_t n) {
  LinkWide all = (LinkWide)level->link * (LinkWide)level->links;
  if (link_kind_info(level->kind)->port != PORT_bus)
    all *= (LinkWide)level->count;
  const LinkRatio *ratio = &level->oversubscription;
  return all / (LinkWide)n / (LinkWide)ratio->num * (LinkWide)ratio->den;
}

/* The least side whose `dims`-th power is at least n. */
static int64_t torus_side(int64_t n, int64_t dims) {
  if (dims == 1) return n;
  for (int64_t side = 2;; side++) {
    int64_t volume = 1;
    for (int64_t i = 0; i < dims && volume < n; i++) volume *= side;
    if (volume >= n) return side;
  }
}

/* The links that lead from one half of the members to the other. */
static LinkWide cut_links(const Level *level, int64_t n) {
  int64_t dims = level->links / 2 > 1 ? level->links / 2 : 1;
  switch (link_kind_info(level->kind)->cut) {
  case CUT_link: return 1;
  case CUT_ring: return (LinkWide)level->links;
  case CUT_torus: {
    int64_t rings = n / torus_side(n, dims);
    return (LinkWide)(rings > 1 ? rings : 1) *
           (LinkWide)(level->links > 1 ? 2 : 1);
  }
  case CUT_full: break;
  }
  UNREACHABLE();
}

/* The most that each member may send so that the part of it for the other half
 * passes the cut: of `near` members, each sends far / (n - 1) of its bytes over
 * it. */
static LinkWide cut_bandwidth(const Level *level, int64_t n) {
  LinkWide near = (LinkWide)(n / 2), far = (LinkWide)(n - n / 2);
  return (LinkWide)level->link * cut_links(level, n) * (LinkWide)(n - 1) /
         (near * far);
}

Bytes level_bandwidth(const Level *level, Pattern pattern, int64_t n,
                      int64_t transfers) {
  ASSERT(n >= 2 && n <= level->count && transfers >= 1);
  LinkWide bytes = port_bandwidth(level, n, transfers);
  bytes = least(bytes, uplink_bandwidth(level, n));
  if (pattern == PATTERN_all && link_kind_info(level->kind)->cut != CUT_full)
    bytes = least(bytes, cut_bandwidth(level, n));
  bytes = least(bytes, (LinkWide)INT64_MAX);
  return bytes > 0 ? (Bytes)bytes : 1;
}
