#include "fs/job/name_intent.h"

#include <array>
#include <string_view>

#include "base/contain.h"
#include "base/log.h"
#include "base/sealed_document.h"

namespace swale::fs {
namespace {

constexpr DocumentFormat kFormat{"swale-intent"};
constexpr std::array<std::string_view, 4> kOps = {"unlink", "rmdir", "rename", "exchange"};
constexpr size_t kBytesMax = 64 * kKiB;

std::string encode(const NameChange& change) {
  JsonWriter json;
  begin_document(kFormat, {}, &json);
  json.member("op", kOps[static_cast<size_t>(change.op)]).member("from", change.from).member("to", change.to);
  json.member("high", hex16(change.file.high)).member("low", hex16(change.file.low));
  json.member("inode", hex16(change.inode));
  return take_sealed(&json);
}

Result<NameChange> decode(const std::string& text, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kFormat));
  const DocumentObject root = document.root();
  NameChange change;
  SWALE_ASSIGN_OR_RETURN(const std::string op, root.text("op"));
  size_t at = 0;
  while (at < kOps.size() && kOps[at] != op) ++at;
  if (at == kOps.size()) return root.problem("op", "unlink, rmdir, rename or exchange");
  change.op = static_cast<NameChange::Op>(at);
  SWALE_ASSIGN_OR_RETURN(change.from, root.text("from"));
  SWALE_ASSIGN_OR_RETURN(change.to, root.text("to"));
  SWALE_ASSIGN_OR_RETURN(change.file.high, root.hex("high"));
  SWALE_ASSIGN_OR_RETURN(change.file.low, root.hex("low"));
  SWALE_ASSIGN_OR_RETURN(change.inode, root.hex("inode"));
  return change;
}

}  // namespace

Result<std::unique_ptr<NameIntent>> NameIntent::open(io::Device& device, const std::string& folder) noexcept {
  std::unique_ptr<NameIntent> intent;
  const Status status = contain([&]() -> Status {
    const std::string path = folder + "/intent";
    SWALE_ASSIGN_OR_RETURN(auto file, device.open(path, io::OpenMode::kOpenOrCreate));
    intent.reset(new NameIntent(std::move(file)));
    SWALE_ASSIGN_OR_RETURN(const std::string text, io::read_file(device, path, kBytesMax));
    if (text.empty()) return {};
    auto change = decode(text, path);
    if (change.ok())
      intent->left_ = std::move(*change);
    else
      log_info("{}; the change had not begun", change.status().message());
    return {};
  });
  if (!status.ok()) return status;
  return intent;
}

Status NameIntent::put(const NameChange& change, meta::AnswerWait wait) noexcept {
  return contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(file_->truncate(0));
    SWALE_RETURN_IF_ERROR(file_->pwrite(0, encode(change)));
    return wait == meta::AnswerWait::kSynced ? file_->sync() : Status();
  });
}

void NameIntent::clear() noexcept {
  const Status cleared = contain([&] { return file_->truncate(0); });
  if (!cleared.ok()) log_warn("{}", cleared.message());
}

}  // namespace swale::fs
