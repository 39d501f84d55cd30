#include "iond/stripes.h"

#include <fmt/format.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "io/descriptor_path.h"

namespace swale::iond {
namespace {

Result<Stripes> stripes_of(const std::string& path, std::string_view text) {
  Stripes found;
  uint64_t numbers[5] = {};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < std::size(numbers); ++i) {
    const auto [after, failed] = std::from_chars(at, end, numbers[i], i == 1 ? 16 : 10);
    if (failed != std::errc() || (after != end) != (i + 1 < std::size(numbers)))
      return corruption("{}: the attribute {} is \"{}\"; expected \"1 ID STRIPE SERVERS FIRST\"", path,
                        kStripesAttribute, text);
    at = after == end ? end : after + 1;
  }
  if (numbers[0] != 1)
    return error(Code::kUnsupported, Scope::kFile, "{}: {} has version {}; this build knows 1", path,
                 kStripesAttribute, numbers[0]);
  found.id = numbers[1];
  found.striping = {numbers[2], static_cast<uint32_t>(std::min<uint64_t>(numbers[3], UINT32_MAX)),
                    static_cast<uint32_t>(std::min<uint64_t>(numbers[4], UINT32_MAX))};
  if (const Status wrong = found.striping.check(); !wrong.ok() || found.id == 0)
    return corruption("{}: the attribute {} is \"{}\"", path, kStripesAttribute, text);
  return found;
}

}  // namespace

std::string text_of(const Stripes& stripes) {
  return fmt::format("1 {:016x} {} {} {}", stripes.id, stripes.striping.stripe_bytes,
                     stripes.striping.servers, stripes.striping.first);
}

Result<std::optional<Stripes>> read_stripes(const io::Descriptor& file, const std::string& path) {
  char text[256];
  const ssize_t bytes = ::getxattr(io::descriptor_path(file).c_str(), kStripesAttribute, text, sizeof(text));
  if (bytes < 0 && errno == ENODATA) return std::optional<Stripes>();
  if (bytes < 0) return errno_status(errno, path + ": its attribute " + kStripesAttribute);
  SWALE_ASSIGN_OR_RETURN(const Stripes found, stripes_of(path, {text, static_cast<size_t>(bytes)}));
  return std::optional<Stripes>(found);
}

Status expect_stripes(const std::string& path, const Stripes& found, const Striping& wanted) {
  const Striping& is = found.striping;
  if (is.stripe_bytes == wanted.stripe_bytes && is.servers == wanted.servers) return {};
  return invalid_argument(
      "{}: is striped in {} bytes over {} servers; this client stripes in {} bytes over {}", path,
      is.stripe_bytes, is.servers, wanted.stripe_bytes, wanted.servers);
}

}  // namespace swale::iond
