#include "io/lock_content.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <ctime>
#include <utility>

#include "base/hash.h"
#include "base/json_writer.h"

namespace swale::io {
namespace {

constexpr size_t kCounterDigits = 20;
constexpr size_t kTextBytesMax = 256;  // per text: eight escaped texts stay below kLockBytesMax
constexpr std::string_view kHead = "{\"counter\":\"";
static_assert(kHead.size() == kCounterOffset, "DO NOT CHANGE: the offset is part of the format");

std::optional<uint64_t> number_of(std::string_view digits) {
  uint64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, number);
  if (digits.size() != kCounterDigits || failure != std::errc() || stop != end) return std::nullopt;
  return number;
}

Status other_members(std::string_view name) {
  return error(
      Code::kUnsupported, Scope::kFile,
      "is a JSON object without the member \"{}\" that this version of Swale expects: another version "
      "or another program has made it",
      name);
}

// Texts of a lock are shown in messages and escaped in JSON; both stay short.
std::string bounded(const std::string& text) { return text.substr(0, kTextBytesMax); }

}  // namespace

std::string LockContent::counter_text(uint64_t counter) { return fmt::format("{:020}", counter); }

std::string LockContent::encode() const {
  JsonWriter json;
  json.object().member("counter", counter_text(counter)).member("nonce", nonce);
  json.member("lease_s", to_seconds(lease)).member("host", bounded(holder.host));
  json.member("boot", bounded(holder.boot)).member("pid_namespace", bounded(holder.pid_namespace));
  json.member("pid", holder.pid).member("start_time", bounded(holder.start_time));
  json.member("allocation", bounded(allocation)).member("job", bounded(job)).member("since", bounded(since));
  return json.end().text() + "\n";
}

Result<LockContent> LockContent::decode(std::string_view bytes) {
  if (bytes.size() > kLockBytesMax)
    return corruption("has more than {} bytes, which no lock has", kLockBytesMax);
  const Result<JsonTree> json = JsonTree::parse(bytes);
  if (!json.ok() || !json->root().is_object())
    return corruption("its {} bytes are no JSON object", bytes.size());
  LockContent lock;
  std::string counter;
  const std::pair<const char*, std::string*> texts[] = {{"counter", &counter},
                                                        {"nonce", &lock.nonce},
                                                        {"host", &lock.holder.host},
                                                        {"boot", &lock.holder.boot},
                                                        {"pid_namespace", &lock.holder.pid_namespace},
                                                        {"start_time", &lock.holder.start_time},
                                                        {"allocation", &lock.allocation},
                                                        {"job", &lock.job},
                                                        {"since", &lock.since}};
  for (const auto& [name, text] : texts) {
    std::optional<std::string> member = json->root().find(name).string();
    if (!member) return other_members(name);
    *text = *std::move(member);
  }
  const std::optional<int64_t> pid = json->root().find("pid").integer();
  if (!pid) return other_members("pid");
  lock.holder.pid = *pid;
  const std::optional<double> lease_s = json->root().find("lease_s").number();
  if (!lease_s) return other_members("lease_s");
  lock.lease = seconds(std::clamp(*lease_s, to_seconds(kLeaseMin), to_seconds(kLeaseMax)));
  const auto number = number_of(counter);
  if (!number || !bytes.starts_with(kHead)) return other_members("counter");
  lock.counter = *number;
  const bool hex = lock.nonce.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (lock.nonce.size() != 16 || !hex) return other_members("nonce");
  return lock;
}

std::string LockContent::who() const {
  const std::string in = allocation.empty() ? "" : fmt::format(" ({})", allocation);
  return fmt::format("process {} on host {}{}", holder.pid, holder.host, in);
}

std::string FoundLock::text() const {
  if (content.ok())
    return fmt::format("the lock of {}, which held it since {}", content->who(), content->since);
  const std::string_view why = content.status().message();
  return content.status().code() == Code::kUnsupported ? fmt::format("a file that {}", why)
                                                       : fmt::format("a file that is no lock ({})", why);
}

std::string FoundLock::token() const {
  return content.ok() ? content->nonce : fmt::format("x{:016x}", uint64_t{hash_bytes(bytes)});
}

Result<FoundLock> read_lock(Device& device, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, device.open(path, OpenMode::kRead));
  FoundLock found;
  found.bytes.resize(kLockBytesMax + 1);
  SWALE_ASSIGN_OR_RETURN(const size_t got, file->pread(0, found.bytes));
  found.bytes.resize(got);
  found.content = LockContent::decode(found.bytes);
  return found;
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace swale::io
