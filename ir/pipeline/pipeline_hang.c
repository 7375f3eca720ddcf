/*
 * pipeline_hang.c -- reports that ranks of a list that a person wrote wait for
 * each other for ever, at the places of its tokens.
 *
 *     0F0,0RECV_B0,0SEND_F0     rank 0 may hang at '0RECV_B0'
 *     1RECV_F0,1F0,1B0,1SEND_B0
 */
#include "ir/pipeline/rendezvous.h"

const Token *rendezvous_token(const Pipeline *pipeline, RendezvousPlace place) {
  if (place.action < 0) return NULL;
  return &pipeline->lists[place.class].data[place.action];
}

static const char *quoted(Arena *arena, const Pipeline *pipeline,
                          RendezvousPlace place) {
  const Token *token = rendezvous_token(pipeline, place);
  if (!token) return "nothing";
  return arena_printf(arena, "'%s'", token_text(arena, pipeline, token));
}

static void report_mismatch(Arena *arena, Diags *diags,
                            const Pipeline *pipeline,
                            const RendezvousResult *result) {
  RendezvousPlace send = result->places[0], receive = result->places[1];
  const Token *sent = rendezvous_token(pipeline, send),
              *received = rendezvous_token(pipeline, receive);
  Diag *d =
      diag(diags, DIAG_schedule_mismatch, sent ? sent->span : received->span,
           send.class, quoted(arena, pipeline, send), receive.class,
           quoted(arena, pipeline, receive));
  if (sent && received) diag_note(d, received->span, "it receives this");
  diag_help(d, "messages between two ranks have no names: the first that one "
               "sends is the first that the other receives");
}

/* The place of a message is that of its send, followed by its receive. */
static int places_of_one(const Pipeline *pipeline,
                         const RendezvousResult *result, int at) {
  const Token *token = rendezvous_token(pipeline, result->places[at]);
  TokenRole role = token_info(token->kind)->role;
  return role == TOKEN_ROLE_send || role == TOKEN_ROLE_receive ? 2 : 1;
}

/* The other side of a message. */
static const char *meets(Arena *arena, const Pipeline *pipeline,
                         const RendezvousResult *result, int at) {
  if (places_of_one(pipeline, result, at) == 1) return "";
  RendezvousPlace receive = result->places[at + 1];
  return arena_printf(arena, ", which meets %s of rank %d",
                      quoted(arena, pipeline, receive), receive.class);
}

/* Each waits for the one before it, so the reader follows it backwards. */
static void note_cycle(Arena *arena, const Pipeline *pipeline,
                       const RendezvousResult *result, Diag *d) {
  enum { MOST_NOTES = 12 };
  VEC(int) begins = {0};
  for (int i = 0; i < result->n_places; i += places_of_one(pipeline, result, i))
    vec_push(arena, &begins, i);
  int n_notes = 0;
  for (int k = begins.n - 1; k > 0 && n_notes < MOST_NOTES; k--, n_notes++) {
    RendezvousPlace place = result->places[begins.data[k]];
    diag_note(d, rendezvous_token(pipeline, place)->span,
              "that waits for %s of rank %d%s", quoted(arena, pipeline, place),
              place.class, meets(arena, pipeline, result, begins.data[k]));
  }
  if (begins.n - 1 > MOST_NOTES)
    diag_note(d, SPAN_NONE, "and so on, over %d more actions",
              begins.n - 1 - MOST_NOTES);
  diag_note(d, rendezvous_token(pipeline, result->places[0])->span,
            "that waits for the first one%s",
            meets(arena, pipeline, result, 0));
}

static void report_hang(Arena *arena, Diags *diags, const Pipeline *pipeline,
                        const RendezvousResult *result) {
  RendezvousPlace first = result->places[0];
  const Token *token = rendezvous_token(pipeline, first);
  TokenRole role = token_info(token->kind)->role;
  const char *text = token_text(arena, pipeline, token);
  if (result->n_places == 1 && role == TOKEN_ROLE_call) {
    diag(diags, DIAG_schedule_unsent, token->span, text, first.class);
    return;
  }
  Diag *d = diag(diags, DIAG_schedule_cycle, token->span, first.class, text);
  note_cycle(arena, pipeline, result, d);
}

void pipeline_report_hang(Arena *arena, Diags *diags, const Pipeline *pipeline,
                          const RendezvousResult *result) {
  if (result->verdict == RENDEZVOUS_mismatch)
    report_mismatch(arena, diags, pipeline, result);
  if (result->verdict == RENDEZVOUS_may_hang)
    report_hang(arena, diags, pipeline, result);
}
