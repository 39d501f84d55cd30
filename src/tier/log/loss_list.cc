#include "tier/log/loss_list.h"

#include <array>
#include <utility>

#include "base/json_writer.h"
#include "base/sealed_document.h"
#include "tier/log/log_format.h"
#include "tier/policy/options.h"

namespace swale::tier {
namespace {

constexpr DocumentFormat kFormat = {.name = "swale-tier-losses"};

constexpr std::array<std::pair<LossReason, std::string_view>, 4> kReasons = {{
    {LossReason::kDamaged, "damaged"},
    {LossReason::kUnreadable, "unreadable"},
    {LossReason::kNotWritten, "not-written"},
    {LossReason::kTwoFiles, "two-files"},
}};

Result<LossReason> parse_reason(const DocumentObject& object) {
  SWALE_ASSIGN_OR_RETURN(const std::string text, object.text("reason"));
  for (const auto& [reason, name] : kReasons)
    if (name == text) return reason;
  return object.problem("reason", "damaged, unreadable, not-written or two-files");
}

Result<LostRange> decode_range(const DocumentObject& object) {
  LostRange range;
  SWALE_ASSIGN_OR_RETURN(range.file, object.hex("file"));
  SWALE_ASSIGN_OR_RETURN(range.offset, object.number("offset", 0, uint64_t{1} << 48));
  SWALE_ASSIGN_OR_RETURN(range.length, object.number("length", 1, kWriteBytesMax));
  SWALE_ASSIGN_OR_RETURN(range.sequence, object.hex("sequence"));
  if (range.sequence > kSequenceMax) return object.problem("sequence", "2^62 at most");
  SWALE_ASSIGN_OR_RETURN(range.address, object.hex("address"));
  SWALE_ASSIGN_OR_RETURN(range.reason, parse_reason(object));
  SWALE_ASSIGN_OR_RETURN(range.accepted, object.flag("accepted"));
  return range;
}

}  // namespace

std::string_view loss_reason_name(LossReason reason) {
  for (const auto& [known, name] : kReasons)
    if (known == reason) return name;
  return "?";
}

std::string encode_loss_list(const LossList& list) {
  JsonWriter json;
  begin_document(kFormat, {}, &json);
  json.member("log", hex16(list.log_id)).name("ranges").array();
  for (const LostRange& range : list.ranges)
    json.line()
        .object()
        .member("file", hex16(range.file))
        .member("offset", range.offset)
        .member("length", range.length)
        .member("sequence", hex16(range.sequence))
        .member("address", hex16(range.address))
        .member("reason", loss_reason_name(range.reason))
        .member("accepted", range.accepted)
        .end();
  json.end();
  return take_sealed(&json);
}

Result<LossList> decode_loss_list(Bytes text, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kFormat));
  const DocumentObject root = document.root();
  LossList list;
  SWALE_ASSIGN_OR_RETURN(list.log_id, root.hex("log"));
  SWALE_ASSIGN_OR_RETURN(const JsonValue ranges, root.array("ranges"));
  for (const JsonValue value : ranges) {
    SWALE_ASSIGN_OR_RETURN(const LostRange range,
                           decode_range(root.below(value, fmt::format("range {}", list.ranges.size()))));
    list.ranges.push_back(range);
  }
  return list;
}

}  // namespace swale::tier
