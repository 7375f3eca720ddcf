/*
 * trace_steps.c -- writes the simulated step as a timeline that Perfetto and
 * chrome://tracing read, in the form of a run's (runtime/exec/trace.c).
 *
 * A process is a class of ranks.  Track 0 is its stream, with the waits that
 * nothing hides; the others are its queues.  Times are microseconds with six
 * decimals, which is exact.
 */
#include "tools/commands/tool_price.h"

static const char *phase_words(Phase phase) {
  static const char *const words[] = {
#define PHASE(name, spelling, words) words,
#include "support/phases.def"
  };
  return words[phase];
}

static void add_microseconds(Text *out, Ps time) {
  text_printf(out, "%lld.%06lld", (long long)(time / 1000000),
              (long long)(time % 1000000));
}

static void add_event(Text *out, int class, int track, const char *name,
                      Ps begin, Ps end) {
  text_printf(out, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":", class,
              track);
  text_add_json(out, name);
  text_add(out, ",\"ts\":");
  add_microseconds(out, begin);
  text_add(out, ",\"dur\":");
  add_microseconds(out, end - begin);
}

static void add_track(Text *out, int class, int track, const char *name) {
  text_printf(out,
              ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":"
              "\"thread_name\",\"args\":{\"name\":\"%s\"}}",
              class, track, name);
}

static const char *path_of(const PricedNode *at) {
  const char *path = at->edge ? at->edge->path : at->node->path;
  return path ? path : "";
}

static void add_stream(Text *out, const Priced *p, int class) {
  const PricedClass *of = &p->classes[class];
  for (int i = 0; i < of->stream.n; i++) {
    const StreamSpan *span = &of->stream.data[i];
    const PricedNode *at = &of->nodes[span->instruction];
    const char *path = path_of(at);
    add_event(out, class, 0,
              span->is_wait ? arena_printf(out->arena, "wait: %s", path) : path,
              span->begin, span->end);
    text_printf(out,
                ",\"args\":{\"phase\":\"%s\",\"operator\":\"%s\","
                "\"part\":\"%s\"",
                phase_words(priced_node_phase(at)), priced_node_name(at),
                cost_term_info(span->part)->name);
    if (span->taken > 0) {
      text_add(out, ",\"interference_us\":");
      add_microseconds(out, span->taken);
    }
    text_add(out, "}}");
  }
}

static void add_queues(Text *out, const Priced *p, int class) {
  const PricedClass *of = &p->classes[class];
  for (int i = 0; i < of->queues.n; i++) {
    const QueueSpan *span = &of->queues.data[i];
    const PricedNode *at = &of->nodes[span->instruction];
    add_event(out, class, span->queue + 1, path_of(at), span->begin, span->end);
    text_printf(out,
                ",\"args\":{\"phase\":\"%s\",\"operator\":\"%s\","
                "\"bytes_sent\":%lld}}",
                phase_words(priced_node_phase(at)), priced_node_name(at),
                (long long)priced_node_sent(at));
  }
}

/* "a100_80g", with several programs "a100_80g from rank 4 on". */
static const char *words_of_class(const Text *out, const Priced *p, int class) {
  const PriceClass *of = &p->price.classes[class];
  const char *device = of->group->device->name;
  return p->n_programs == 1 ? device
                            : arena_printf(out->arena, "%s from rank %lld on",
                                           device, (long long)of->first_rank);
}

Status trace_step(Arena *arena, const Priced *p, const char *path) {
  Text out = text_create(arena);
  for (int class = 0; class < p->n_classes; class ++) {
    text_printf(&out,
                "%s\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\","
                "\"args\":{\"name\":\"%d ranks of %s (simulated)\"}}",
                class ? "," : "{\"traceEvents\":[", class,
                p->price.classes[class].ranks, words_of_class(&out, p, class));
    add_track(&out, class, 0, "stream");
    for (int q = 0; q < priced_queues(p, class); q++)
      add_track(&out, class, q + 1, priced_queue_name(arena, p, class, q));
    add_stream(&out, p, class);
    add_queues(&out, p, class);
  }
  text_add(&out, "\n],\"displayTimeUnit\":\"ms\"}\n");
  return file_replace(path, text_string(&out), out.n);
}
