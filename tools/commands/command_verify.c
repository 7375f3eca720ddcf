/*
 * command_verify.c -- `dnnc verify`: whether the program of a plan computes
 * what one rank without a plan does, in words or as JSON.
 */
#include "tools/plan/verify_certificate.h"
#include "verify/resize.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SEED = 1 };

static double verify_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- the report ---- */

static const char *answer_json(Answer answer) {
  return answer == ANSWER_yes ? "true" : "false";
}

static void add_answer(Text *out, const char *key, Answer answer) {
  if (answer == ANSWER_not_checked) return;
  text_printf(out, "\"%s\":%s,", key, answer_json(answer));
}

static const char guarantee[] =
    "exact mode with two seeds: every replica equal modulo 2^61 - 1, functions "
    "that are no field operations being random; f64 on one set of inputs: "
    "every replica within 1e-9 of a tensor's largest element, or 32 times what "
    "2^-50 of the parameters changes";

static void add_text(Text *out, const char *key, const char *text) {
  if (!text) return;
  text_printf(out, ",\"%s\":", key);
  text_add_json(out, text);
}

static void add_certificate_json(Text *out,
                                 const CertificateCheck *certificate) {
  add_text(out, "certificate_fault", certificate->fault);
  add_text(out, "bound_not_checked", certificate->bound_not_checked);
}

static void print_json(Tool *tool, const VerifyReport *report,
                       const CertificateCheck *certificate, double seconds) {
  Text out = text_create(tool->arena);
  text_printf(&out, "{\"equal\":%s,", answer_json(report->equal));
  add_answer(&out, "placement_ok", report->placement_ok);
  add_answer(&out, "hang_free", report->hang_free);
  add_answer(&out, "messages_match", report->messages_match);
  add_answer(&out, "memory_ok", report->memory_ok);
  add_answer(&out, "certificate_ok", certificate->is_right);
  text_printf(&out, "\"guarantee\":\"%s\",\"max_rel_error\":%.3g", guarantee,
              report->max_rel_error);
  if (report->widest_path)
    text_printf(&out, ",\"widest_limit\":%.3g", report->widest_limit);
  add_text(&out, "widest_path", report->widest_path);
  if (report->path) {
    text_printf(&out,
                ",\"numbers\":\"%s\",\"step\":\"%s\",\"kind\":\"%s\",\"path\":",
                report->numbers, report->step, report->kind);
    text_add_json(&out, report->path);
    text_printf(&out, ",\"rank\":%d", report->rank);
    if (report->stage >= 0) text_printf(&out, ",\"stage\":%d", report->stage);
  }
  add_text(&out, "not_compared", report->not_compared);
  add_text(&out, "not_played", report->not_played);
  add_text(&out, "sizes", report->sizes);
  add_text(&out, "kept_sizes", report->kept_sizes);
  add_certificate_json(&out, certificate);
  if (report->has_single_elements) text_add(&out, ",\"single_elements\":true");
  add_text(&out, "blocks", report->repeats);
  if (report->stages > 1)
    text_printf(&out, ",\"stages\":%d,\"stage_messages\":%lld", report->stages,
                (long long)report->n_messages);
  if (report->servers > 0)
    text_printf(&out, ",\"servers\":%d", report->servers);
  add_text(&out, "versions", report->versions);
  if (report->played_microbatches)
    text_printf(&out, ",\"played_microbatches\":%d",
                report->played_microbatches);
  text_printf(&out, ",\"batch_shards\":%lld,\"different_shards\":%lld",
              (long long)report->batch_shards, (long long)report->contents);
  text_printf(&out, ",\"seconds\":%.3f}\n", seconds);
  tool_print(&out);
}

static void add_line(Text *out, Answer answer, const char *yes,
                     const char *fault, const char *topic) {
  if (answer == ANSWER_yes)
    text_printf(out, "%s\n", yes);
  else if (answer == ANSWER_no)
    text_printf(out, "%s: %s\n", topic, fault);
  else
    text_printf(out, "%s: not checked\n", topic);
}

static const char *verdict_of(Arena *arena, const VerifyReport *report) {
  const char *reference = "one rank";
  if (report->versions)
    reference = arena_printf(arena,
                             "one rank that keeps the parameters of before, as "
                             "'%s' reads them",
                             report->versions);
  switch (report->equal) {
  case ANSWER_yes: return arena_printf(arena, "equal to %s", reference);
  case ANSWER_no: return arena_printf(arena, "NOT equal to %s", reference);
  case ANSWER_not_checked: return "not shown to be equal";
  }
  UNREACHABLE();
}

static void add_comparison(Text *out, const VerifyReport *report) {
  text_printf(
      out,
      "%d outputs were compared on every rank, in f64 and with two seeds "
      "in exact mode: %s;\nthe largest difference in f64 is %.2g of a "
      "tensor's largest element (limit %.0e)\n",
      report->n_compared, report->steps ? report->steps : "no step",
      report->max_rel_error, report->limit);
  if (report->widest_path)
    text_printf(
        out,
        "terms cancel in what '%s' is computed from, so its limit in f64 "
        "is %.1e\n",
        report->widest_path, report->widest_limit);
  if (report->path) {
    text_printf(out, "first difference, by %s in %s: %s '%s' on rank %d",
                report->numbers, report->step, report->kind, report->path,
                report->rank);
    if (report->stage >= 0) text_printf(out, " (stage %d)", report->stage);
    text_printf(out, ", element %lld\n", (long long)report->element);
  }
  if (report->not_compared)
    text_printf(out, "not compared: %s\n", report->not_compared);
  if (report->not_played)
    text_printf(out, "not played: %s, which each rank computes in full%s\n",
                report->not_played,
                report->stages > 1 ? ", as far as its stages go" : "");
  if (report->clip > 0)
    text_printf(out, "clip is set to %.3g, half of the gradient norm\n",
                report->clip);
}

static void add_certificate(Text *out, const CertificateCheck *certificate) {
  const char *why = certificate->bound_not_checked;
  add_line(out, why ? ANSWER_yes : certificate->is_right,
           "certificate: priced again, a step takes as long as it says",
           certificate->fault, "certificate");
  if (why)
    text_printf(out, "bound: not checked: %s\n", why);
  else if (certificate->has_bound && certificate->is_right == ANSWER_yes)
    text_add(out, "bound: computed again, no plan of its space that fits is "
                  "faster\n");
}

/* "mlp on 4 ranks in 2 stages with 4 micro-batches: equal to one rank". */
static void add_subject(Text *out, const Compilation *c,
                        const VerifyReport *report) {
  text_printf(out, "%s on %d rank%s", c->model->name, report->ranks,
              report->ranks == 1 ? "" : "s");
  if (report->stages > 1) text_printf(out, " in %d stages", report->stages);
  if (report->servers > 0)
    text_printf(out, ", %d of them server%s,", report->servers,
                report->servers == 1 ? "" : "s");
  text_printf(out, " with %lld micro-batch%s: %s\n",
              (long long)report->microbatches,
              report->microbatches == 1 ? "" : "es",
              verdict_of(c->module->arena, report));
}

static const char *order_text(const VerifyReport *report) {
  return report->stages > 1
             ? "order: each queue has one order on all ranks, every collective "
               "is waited for, and no stage waits for ever for another"
             : "order: each queue has one order on all ranks, and every "
               "collective is waited for";
}

static const char *messages_text(Arena *arena, const VerifyReport *report) {
  const char *text =
      arena_printf(arena,
                   "messages: the tables have the groups, bytes and dtypes of "
                   "the %lld collectives that were played",
                   (long long)report->n_collectives);
  if (report->stages == 1) return text;
  return arena_printf(arena,
                      "%s, and the ranks, bytes, dtypes and order of the %lld "
                      "messages between stages",
                      text, (long long)report->n_messages);
}

static void print_words(Tool *tool, const Compilation *c,
                        const VerifyReport *report,
                        const CertificateCheck *certificate) {
  Text out = text_create(tool->arena);
  add_subject(&out, c, report);
  if (report->repeats)
    text_printf(&out, "played as three blocks: %s\n", report->repeats);
  if (report->played_microbatches)
    text_printf(&out,
                "played with %d micro-batches, which use all frames and slots "
                "again; the order of all %lld is checked in the tables\n",
                report->played_microbatches, (long long)report->microbatches);
  if (report->sizes) text_printf(&out, "sizes: %s\n", report->sizes);
  if (report->has_single_elements)
    text_printf(&out, "dims of more than %d shards have one element a shard\n",
                RESIZE_MANY_SHARDS);
  if (report->kept_sizes)
    text_printf(&out, "played at their sizes: %s\n", report->kept_sizes);
  if (report->contents < report->batch_shards)
    text_printf(&out,
                "samples: %lld shards of the batch, %lld of them different in "
                "a step, any two in one of the training steps\n",
                (long long)report->batch_shards, (long long)report->contents);
  add_comparison(&out, report);
  add_line(&out, report->placement_ok,
           "placements: the sharding rules give every one of them again",
           report->placement_fault, "placements");
  add_line(&out, report->hang_free, order_text(report), report->message_fault,
           "order");
  add_line(&out, report->messages_match, messages_text(tool->arena, report),
           report->message_fault, "messages");
  add_line(&out, report->memory_ok,
           "memory: nothing is overwritten early, and the peak is the highest "
           "byte touched",
           report->memory_fault, "memory");
  if (tool->options.cluster) add_certificate(&out, certificate);
  if (certificate->lacks_cluster)
    text_add(&out, "certificate: not checked: --cluster FILE says on which "
                   "machines step and bound are\n");
  tool_print(&out);
}

static bool is_proved(const VerifyReport *report,
                      const CertificateCheck *certificate) {
  return certificate->is_right != ANSWER_no && report->equal == ANSWER_yes &&
         report->placement_ok != ANSWER_no && report->hang_free != ANSWER_no &&
         report->messages_match != ANSWER_no && report->memory_ok != ANSWER_no;
}

/* ---- the certificate alone ---- */

static int report_certificate(Tool *tool, const CertificateCheck *certificate,
                              double seconds) {
  Text out = text_create(tool->arena);
  if (tool->options.json) {
    text_printf(&out, "{\"certificate_ok\":%s,\"played\":false",
                certificate->is_right == ANSWER_not_checked
                    ? "null"
                    : answer_json(certificate->is_right));
    add_certificate_json(&out, certificate);
    text_printf(&out, ",\"seconds\":%.3f}\n", seconds);
  } else {
    text_add(&out, "nothing was played: whether the plan computes what one "
                   "rank does is not checked\n");
    add_certificate(&out, certificate);
  }
  tool_print(&out);
  return certificate->is_right == ANSWER_yes ? EXIT_done : EXIT_user;
}

static int report_no_certificate(const Tool *tool) {
  message_print("dnnc: error: '%s' has no certificate\nhelp: 'dnnc plan' "
                "writes one; without --certificate the plan is played\n",
                tool->options.plan);
  return EXIT_user;
}

int command_verify(Tool *tool) {
  Compilation c;
  double begin = verify_clock();
  int code = tool_load(tool, &c);
  if (code != EXIT_done) return code;
  if (!c.model->has_train) {
    message_print("dnnc: error: '%s' has no train block to verify\n",
                  tool->options.subject);
    return EXIT_user;
  }
  CertificateCheck certificate;
  code = verify_certificate(tool, &c, &certificate);
  if (code != EXIT_done) return code;
  if (tool->options.certificate)
    return certificate.is_there
               ? report_certificate(tool, &certificate, verify_clock() - begin)
               : report_no_certificate(tool);
  VerifyReport report;
  CompileResult result = driver_verify(&c, SEED, &report);
  if (result != COMPILE_done)
    return result == COMPILE_no_plan ? EXIT_no_plan : EXIT_user;
  if (tool->options.json)
    print_json(tool, &report, &certificate, verify_clock() - begin);
  else
    print_words(tool, &c, &report, &certificate);
  return is_proved(&report, &certificate) ? EXIT_done : EXIT_user;
}
