#include "net/rendezvous.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <thread>

#include "base/coding.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/patience.h"
#include "base/process_identity.h"
#include "net/rendezvous_file.h"
#include "net/topology.h"

namespace swale::net {
namespace {

constexpr Nanos kPollFirst = milliseconds(1);
constexpr Nanos kPollLast = milliseconds(50);
constexpr size_t kNamedMax = 16;

// A name that is safe as a part of a path and still different for different ids.
std::string file_name_of(std::string_view id) {
  std::string name;
  for (const char c : id.substr(0, 64)) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    name += plain ? c : '_';
  }
  return name == id ? name : fmt::format("{}.{:016x}", name, hash_bytes(id));
}

class Rendezvous : public Bootstrap {
 public:
  explicit Rendezvous(const RendezvousOptions& options)
      : options_(options),
        directory_(
            fmt::format("{}/swale-{}-{}", options.directory, ::geteuid(), file_name_of(options.job_id)),
            file_name_of(options.node_id)),
        limit_(options.deadline + options.deadline_per_rank * options.size) {}
  ~Rendezvous() override { leave(); }

  Status join();
  Rank rank() const override { return options_.rank; }
  int32_t size() const override { return options_.size; }
  Result<std::vector<std::string>> allgather(Bytes mine) override;

 private:
  struct Given {
    uint64_t nonce;
    std::string bytes;
  };

  Status hello();
  Status append(RendezvousKind kind, Bytes body) {
    return directory_.append({kind, options_.rank, nonce_, session_.value_or(0), round_, std::string(body)});
  }
  Status wait_for_session(Patience* patience);
  Status look();
  void take(const RendezvousRecord& record);
  void take_given(const RendezvousRecord& record);
  Status welcome_newcomers();
  Status missing(std::string_view what) const;
  void leave();

  const RendezvousOptions options_;
  RendezvousDirectory directory_;
  const Nanos limit_;
  uint64_t nonce_ = 0;
  bool joined_ = false;
  std::optional<uint64_t> session_;
  uint32_t round_ = 0;
  std::vector<std::optional<Given>> given_;       // to round_
  std::vector<std::optional<Given>> given_next_;  // to round_ + 1, by ranks that are ahead of us
  std::set<uint64_t> newcomers_;                  // rank 0: nonces to be welcomed
  std::set<uint64_t> welcomed_;
  std::vector<bool> seen_;  // ranks that ever said hello, for messages
  std::vector<bool> gone_;
  Status clash_;
};

Status Rendezvous::join() {
  if (::mkdir(options_.directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_status(errno, fmt::format("mkdir {} (option job.rendezvous)", options_.directory));
  }
  uint64_t random[2];
  if (::getrandom(random, sizeof(random), 0) != sizeof(random)) return errno_status(errno, "getrandom");
  nonce_ = random[0];
  const auto size = static_cast<size_t>(options_.size);
  given_.resize(size);
  given_next_.resize(size);
  seen_.resize(size);
  gone_.resize(size);
  if (options_.rank == 0) session_ = random[1];
  SWALE_RETURN_IF_ERROR(hello());
  joined_ = true;
  return ok_status();
}

Status Rendezvous::hello() {
  SWALE_RETURN_IF_ERROR(directory_.open());
  return append(RendezvousKind::kHello, fmt::format("host {} process {}", host_name(), ::getpid()));
}

// One look at the directory.
Status Rendezvous::look() {
  SWALE_RETURN_IF_ERROR(directory_.scan([this](RendezvousRecord record) { take(record); }));
  SWALE_RETURN_IF_ERROR(clash_);
  if (!newcomers_.empty()) return welcome_newcomers();
  if (directory_.own_file_exists()) return ok_status();
  if (!session_) {  // an earlier job with this id was just cleaning up
    directory_.rewind();
    return hello();
  }
  return error(
      Code::kAborted, Scope::kFatal,
      "rendezvous directory {} was removed: rank 0 has left this job, or an earlier one with the same id was "
      "still ending",
      directory_.path());
}

Status Rendezvous::welcome_newcomers() {
  std::string body;
  for (const uint64_t nonce : newcomers_) append_u64(&body, nonce);
  welcomed_.merge(newcomers_);
  newcomers_.clear();
  return append(RendezvousKind::kWelcome, body);
}

void Rendezvous::take(const RendezvousRecord& record) {
  if (record.rank < 0 || record.rank >= options_.size) return;  // of an earlier, larger job
  const auto from = static_cast<size_t>(record.rank);
  switch (record.kind) {
    case RendezvousKind::kHello:
      seen_[from] = true;
      if (options_.rank == 0 && !welcomed_.contains(record.nonce)) newcomers_.insert(record.nonce);
      break;
    case RendezvousKind::kWelcome: {
      if (record.rank != 0) break;
      Decoder in(record.body);
      bool mine = false;
      while (in.remaining() >= sizeof(uint64_t)) mine |= in.u64() == nonce_;
      if (!mine) break;
      if (session_ && *session_ != record.session) {
        clash_ = error(
            Code::kBusy, Scope::kFatal,
            "two jobs with the id \"{}\" are starting in {} at the same time: give each its own SWALE_JOB_ID",
            options_.job_id, options_.directory);
      }
      session_ = record.session;
      break;
    }
    case RendezvousKind::kGather:
      if (session_ == record.session) take_given(record);
      break;
    case RendezvousKind::kBye:
      if (session_ == record.session) gone_[from] = true;
      break;
  }
}

void Rendezvous::take_given(const RendezvousRecord& record) {
  if (record.round != round_ && record.round != round_ + 1) return;
  auto& slot = (record.round == round_ ? given_ : given_next_)[static_cast<size_t>(record.rank)];
  if (slot && slot->nonce != record.nonce) {
    clash_ = error(
        Code::kBusy, Scope::kFatal,
        "two processes claim to be rank {} of job \"{}\" in {}: one may be left from an earlier job; end "
        "it, or give this job its own SWALE_JOB_ID",
        record.rank, options_.job_id, options_.directory);
  }
  slot = Given{record.nonce, record.body};
}

Status Rendezvous::missing(std::string_view what) const {
  std::string ranks;
  size_t count = 0;
  for (size_t i = 0; i < given_.size(); ++i) {
    if (given_[i] || ++count > kNamedMax) continue;
    ranks += fmt::format("{}{}{}", ranks.empty() ? "" : ", ", i, seen_[i] ? "" : " (never seen)");
  }
  if (count > kNamedMax) ranks += fmt::format(" and {} more", count - kNamedMax);
  return error(
      Code::kDeadlineExceeded, Scope::kFatal,
      "rank {} waited {:g} s in {} for {} of {} ranks to {}: {}; do all ranks see this directory, and have "
      "they the same job id (\"{}\")?",
      options_.rank, to_seconds(limit_), directory_.path(), count, options_.size, what, ranks,
      options_.job_id);
}

Status Rendezvous::wait_for_session(Patience* patience) {
  // A shared file system gives no events, so this looks again and again, at growing intervals.
  for (Nanos pause = kPollFirst; !session_; pause = std::min(2 * pause, kPollLast)) {
    SWALE_RETURN_IF_ERROR(look());
    if (session_) break;
    if (patience->over(system_clock().now())) {
      return error(
          Code::kDeadlineExceeded, Scope::kFatal,
          "rank {} waited {:g} s in {} for rank 0 of {} ({}): was it started, does it see this directory, "
          "and has it the same job id (\"{}\")?",
          options_.rank, to_seconds(limit_), directory_.path(), options_.size,
          seen_[0] ? "which has said hello, or an earlier job's has" : "never seen", options_.job_id);
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
  }
  directory_.rewind();  // records of our session that came before we knew it
  return ok_status();
}

Result<std::vector<std::string>> Rendezvous::allgather(Bytes mine) {
  SWALE_RETURN_IF_ERROR(check_gathered_bytes(mine.size()));
  Patience patience(limit_, system_clock().now());
  if (!session_) SWALE_RETURN_IF_ERROR(wait_for_session(&patience));
  SWALE_RETURN_IF_ERROR(append(RendezvousKind::kGather, mine));
  const auto there = [](const std::optional<Given>& each) { return each.has_value(); };
  for (Nanos pause = kPollFirst;; pause = std::min(2 * pause, kPollLast)) {
    SWALE_RETURN_IF_ERROR(look());
    if (std::all_of(given_.begin(), given_.end(), there)) break;
    if (patience.over(system_clock().now())) return missing(fmt::format("give to allgather {}", round_));
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
  }
  std::vector<std::string> all;
  for (auto& each : given_) all.push_back(std::move(each->bytes));
  given_ = std::exchange(given_next_, std::vector<std::optional<Given>>(given_.size()));
  ++round_;
  return all;
}

void Rendezvous::leave() {
  if (!joined_) return;
  if (!session_ || !directory_.own_file_exists()) return;  // never got in, or all is removed
  Status status = append(RendezvousKind::kBye, "");
  Patience patience(options_.rank == 0 ? options_.leave_wait : 0, system_clock().now());
  for (Nanos pause = kPollFirst; status.ok(); pause = std::min(2 * pause, kPollLast)) {
    status = directory_.scan([this](RendezvousRecord record) { take(record); });
    const bool all_gone = std::find(gone_.begin(), gone_.end(), false) == gone_.end();
    const bool over = patience.over(system_clock().now());
    if (all_gone || (over && options_.rank == 0)) return directory_.remove_all();
    if (over || !directory_.own_file_exists()) return;  // the last one has removed all
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
  }
  log_warn("rank {} could not clean up {}: {}", options_.rank, directory_.path(), status.message());
}

}  // namespace

Result<std::unique_ptr<Bootstrap>> rendezvous_bootstrap(const RendezvousOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return invalid_argument("rendezvous: rank {} of {} ranks", options.rank, options.size);
  }
  if (options.directory.empty() || options.job_id.empty() || options.node_id.empty()) {
    return invalid_argument(
        "rendezvous: needs a directory (job.rendezvous), a job id (SWALE_JOB_ID) and a node id; "
        "found \"{}\", \"{}\", \"{}\"",
        options.directory, options.job_id, options.node_id);
  }
  auto rendezvous = std::make_unique<Rendezvous>(options);
  SWALE_RETURN_IF_ERROR(rendezvous->join());
  return std::unique_ptr<Bootstrap>(std::move(rendezvous));
}

}  // namespace swale::net
