#include "fs/losses/loss_report.h"

#include "base/plain_text.h"
#include "base/sealed_document.h"

namespace swale::fs {
namespace {

constexpr DocumentFormat kFormat{"swale-losses"};

std::string_view state_of(const FileLoss& loss, const LossOutcome& outcome) {
  if (outcome.changed_there) return "changed there";
  switch (loss.fate) {
    case FileLoss::Fate::kWhole:
      return "whole";
    case FileLoss::Fate::kNameless:
      return "nameless";
    case FileLoss::Fate::kLostRanges:
      return "lost ranges";
    case FileLoss::Fate::kLostRoot:
      return "lost table";
    default:
      return "open on a lost node";
  }
}

std::string id_text(const meta::FileId& id) { return fmt::format("{:x}:{:x}", id.high, id.low); }

void add_file(const FileLoss& loss, const LossOutcome& outcome, JsonWriter* json) {
  json->line().object().member("id", id_text(loss.file));
  if (!loss.path.empty()) json->member("path", loss.path);
  if (!loss.known_as.empty()) json->member("known_as", loss.known_as);
  json->member("state", state_of(loss, outcome)).member("size", loss.size);
  json->name("lost").array();
  loss.lost.visit(kEachByte, [&](const Span& span, NodeId node) {
    json->array().value(span.begin).value(span.end).value(node).end();
  });
  json->end().name("unwritten").array();
  for (const Span& span : unwritten(loss)) json->array().value(span.begin).value(span.end).end();
  json->end().name("kept").array();
  for (const std::string& name : outcome.kept) json->value(name);
  json->end().end();
}

}  // namespace

std::vector<Span> unwritten(const FileLoss& loss) {
  std::vector<Span> spans;
  if (loss.fate == FileLoss::Fate::kLostRoot) return spans;
  RangeMap<char> holes;
  holes.put({0, loss.size}, 0);
  const auto cut = [&](const Span& span, NodeId) { holes.cut(span); };
  loss.kept.visit(kEachByte, cut);
  loss.lost.visit(kEachByte, cut);
  holes.visit(kEachByte, [&](const Span& span, char) { spans.push_back(span); });
  return spans;
}

std::string loss_document(const LossPlan& plan, const std::vector<LossOutcome>& outcomes) {
  JsonWriter json;
  begin_document(kFormat, {}, &json);
  json.line().member("job", plan.job).member("nodes", plan.nodes).name("without").array();
  for (const NodeId node : plan.absent) json.value(node);
  json.end().member("accepted", !outcomes.empty() || plan.files.empty());
  json.line().name("files").array();
  for (size_t i = 0; i < plan.files.size(); ++i)
    add_file(plan.files[i], outcomes.empty() ? LossOutcome() : outcomes[i], &json);
  json.end().line();
  return take_sealed(&json);
}

std::string loss_text(const LossPlan& plan, const std::vector<LossOutcome>& outcomes) {
  std::string text;
  size_t whole = 0;
  for (size_t i = 0; i < plan.files.size(); ++i) {
    const FileLoss& loss = plan.files[i];
    const LossOutcome outcome = outcomes.empty() ? LossOutcome() : outcomes[i];
    if (loss.is_whole() && !outcome.changed_there) {
      ++whole;
      continue;
    }
    if (!loss.known_as.empty()) text += fmt::format("{}, maybe: ", plain_text(loss.known_as));
    text += fmt::format("{}: {}", loss.path.empty() ? "file " + id_text(loss.file) : plain_text(loss.path),
                        state_of(loss, outcome));
    loss.lost.visit(kEachByte, [&](const Span& span, NodeId node) {
      text += fmt::format("; bytes {} to {} were on node {} alone", span.begin, span.end, node);
    });
    for (const auto& [node, copy] : loss.copies)
      text += fmt::format("; node {} has {} ranges of it", node, copy.size());
    for (const std::string& name : outcome.kept)
      text += fmt::format("; {}/lost+found-{}/{} has what is left", ".swale", plan.job, name);
    text += '\n';
  }
  text += fmt::format("{} files are whole{}\n", whole, outcomes.empty() ? ", and not brought yet" : "");
  text +=
      "Names that stood on the lost nodes, files of which these alone had bytes, and what they had not "
      "committed are not known.\n";
  return text;
}

}  // namespace swale::fs
