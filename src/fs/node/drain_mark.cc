#include "fs/node/drain_mark.h"

#include <array>
#include <charconv>
#include <string_view>

#include "base/sealed_document.h"

namespace swale::fs {
namespace {

constexpr DocumentFormat kFormat{"swale-drain"};
constexpr std::array<std::string_view, 3> kHow = {"whole", "in place", "aside"};

}  // namespace

std::string marked_name(const char* prefix, const meta::FileId& file) {
  return fmt::format("{}{:016x}-{:016x}", prefix, file.high, file.low);
}

std::optional<meta::FileId> marked_file(const char* prefix, const std::string& name) {
  const std::string_view begin = prefix;
  if (!name.starts_with(begin) || name.size() != begin.size() + 33) return {};
  meta::FileId file;
  const char* const high = name.data() + begin.size();
  static_cast<void>(std::from_chars(high, high + 16, file.high, 16));
  static_cast<void>(std::from_chars(high + 17, high + 33, file.low, 16));
  if (marked_name(prefix, file) != name) return {};
  return file;
}

std::string encode_mark(const DrainMark& mark) {
  JsonWriter json;
  begin_document(kFormat, {}, &json);
  json.member("how", kHow[static_cast<size_t>(mark.how)]).member("path", mark.path);
  json.member("device", hex16(mark.stamp.device)).member("inode", hex16(mark.stamp.inode));
  json.member("size", hex16(mark.stamp.size));
  json.member("modified_ns", hex16(static_cast<uint64_t>(mark.stamp.modified_ns)));
  return take_sealed(&json);
}

Result<DrainMark> decode_mark(const std::string& text, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kFormat));
  const DocumentObject root = document.root();
  DrainMark mark;
  SWALE_ASSIGN_OR_RETURN(const std::string how, root.text("how"));
  size_t at = 0;
  while (at < kHow.size() && kHow[at] != how) ++at;
  if (at == kHow.size()) return root.problem("how", "whole, in place or aside");
  mark.how = static_cast<DrainMark::How>(at);
  SWALE_ASSIGN_OR_RETURN(mark.path, root.text("path"));
  SWALE_ASSIGN_OR_RETURN(mark.stamp.device, root.hex("device"));
  SWALE_ASSIGN_OR_RETURN(mark.stamp.inode, root.hex("inode"));
  SWALE_ASSIGN_OR_RETURN(mark.stamp.size, root.hex("size"));
  SWALE_ASSIGN_OR_RETURN(const uint64_t modified, root.hex("modified_ns"));
  mark.stamp.modified_ns = static_cast<int64_t>(modified);
  return mark;
}

}  // namespace swale::fs
