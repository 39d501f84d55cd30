#include "net/meeting/rendezvous.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <thread>

#include "base/coding.h"
#include "base/contain.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/patience.h"
#include "base/process_identity.h"
#include "net/fabric/status_codec.h"
#include "net/meeting/rendezvous_base.h"
#include "net/meeting/rendezvous_file.h"
#include "net/meeting/topology.h"

namespace swale::net {
namespace {

constexpr Nanos kPollFirst = milliseconds(1);
constexpr Nanos kPollLast = milliseconds(50);
constexpr size_t kNamedMax = 16;
constexpr size_t kWelcomedAtOnce = 1024;
// The first byte of an answer: what follows is the answer, or a Status.
constexpr char kAnswered = 1;
constexpr char kMeetingFailed = 2;

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
        collected_(options.size > options.collect_above),
        directory_(
            fmt::format("{}/swale-{}-{}", options.directory, ::geteuid(), file_name_of(options.job_id)),
            file_name_of(options.node_id)),
        limit_(options.deadline + options.deadline_per_rank * options.size) {}
  ~Rendezvous() override {
    static_cast<void>(
        contain([this] { leave(); }));  // without memory the files stay, as those of a killed rank
  }

  Status join();
  Rank rank() const override { return options_.rank; }
  int32_t size() const override { return options_.size; }
  Result<std::string> ask(Bytes mine, Survey* survey) override;
  Result<std::shared_ptr<const AddressBook>> publish(Bytes row, const NodeMap& nodes) override;

 private:
  struct Given {
    uint64_t nonce;
    std::string bytes;
  };

  Status hello();
  RendezvousRecord make_record(RendezvousKind kind, Bytes body) const {
    return {kind, options_.rank, nonce_, session_.value_or(0), round_, std::string(body)};
  }
  Status append(RendezvousKind kind, Bytes body) { return directory_.append(make_record(kind, body)); }
  template <class Came>
  Result<bool> look_until(Patience* patience, const Came& came);
  Status wait_for_session(Patience* patience);
  Status look();
  void take(const RendezvousRecord& record);
  void take_given(const RendezvousRecord& record);
  Status welcome_newcomers();
  bool has_given(size_t rank) const { return collected_ ? here_[rank] : given_[rank].has_value(); }
  bool all_have_given() const;
  Status wait_for_all(Patience* patience);
  Status missing(std::string_view what) const;
  Status two_claim(Rank rank) const;
  void leave();

  // In a small job.
  Result<std::vector<std::string>> gather(Bytes mine);
  // In a large one: rank 0's part, and the others'.
  Result<RankTable> collect(Bytes mine, const std::string& path,
                            const std::function<void(Rank, Bytes)>& visit);
  Result<std::string> survey_all(Bytes mine, Survey* survey);
  Result<std::string> collect_addresses(Bytes mine);
  Result<std::string> tell(const Result<std::string>& answer);
  Result<std::string> ask_rank_zero(Bytes mine);
  Result<std::string> read_answer(Bytes body) const;

  const RendezvousOptions options_;
  const bool collected_;  // by rank 0
  RendezvousDirectory directory_;
  const Nanos limit_;
  uint64_t nonce_ = 0;
  bool joined_ = false;
  std::optional<uint64_t> session_;
  uint32_t round_ = 0;
  std::vector<std::optional<Given>> given_;       // to round_
  std::vector<std::optional<Given>> given_next_;  // to round_ + 1, by ranks that are ahead of us
  std::vector<uint64_t> newcomers_;               // rank 0: nonces to be welcomed
  std::vector<bool> seen_;                        // ranks that ever said hello, for messages
  std::vector<bool> gone_;
  // Of a large job, on rank 0.
  std::vector<uint32_t> nonces_;       // lower halves, of ranks that have given something; else 0
  std::vector<bool> here_;             // ranks that have given to round_
  size_t longest_ = 0;                 // of what they gave
  std::optional<std::string> answer_;  // to round_, on the others
  Status clash_;
};

Status Rendezvous::join() {
  if (!options_.is_descriptor) {
    if (::mkdir(options_.directory.c_str(), 0700) != 0 && errno != EEXIST)
      return errno_status(errno, fmt::format("mkdir {} (option job.rendezvous)", options_.directory));
    SWALE_RETURN_IF_ERROR(check_rendezvous_base(options_.directory));
  }
  uint64_t random[2];
  if (::getrandom(random, sizeof(random), 0) != sizeof(random)) return errno_status(errno, "getrandom");
  nonce_ = random[0];
  const auto size = static_cast<size_t>(options_.size);
  seen_.resize(size);
  gone_.resize(size);
  if (!collected_) {
    given_.resize(size);
    given_next_.resize(size);
  } else if (options_.rank == 0) {
    nonces_.resize(size);
    here_.resize(size);
  }
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
  const auto take_each = [this](const RendezvousRecord& record) { take(record); };
  if (!collected_ || options_.rank == 0) SWALE_RETURN_IF_ERROR(directory_.scan(take_each));
  if (collected_) SWALE_RETURN_IF_ERROR(directory_.scan_answers(take_each));
  SWALE_RETURN_IF_ERROR(clash_);
  if (!newcomers_.empty()) return welcome_newcomers();
  if (directory_.own_records_stand()) return ok_status();
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
  newcomers_.clear();
  const RendezvousRecord welcome = make_record(RendezvousKind::kWelcome, body);
  return collected_ ? directory_.append_answer(welcome) : directory_.append(welcome);
}

void Rendezvous::take(const RendezvousRecord& record) {
  if (record.rank < 0 || record.rank >= options_.size) return;  // of an earlier, larger job
  const auto from = static_cast<size_t>(record.rank);
  switch (record.kind) {
    case RendezvousKind::kHello:
      seen_[from] = true;
      if (options_.rank == 0) newcomers_.push_back(record.nonce);
      if (newcomers_.size() == kWelcomedAtOnce && clash_.ok()) clash_ = welcome_newcomers();
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
    case RendezvousKind::kAnswer:
      if (record.rank == 0 && session_ == record.session && record.round == round_) answer_ = record.body;
      break;
  }
}

Status Rendezvous::two_claim(Rank rank) const {
  return error(
      Code::kBusy, Scope::kFatal,
      "two processes claim to be rank {} of job \"{}\" in {}: one may be left from an earlier job; end "
      "it, or give this job its own SWALE_JOB_ID",
      rank, options_.job_id, options_.directory);
}

void Rendezvous::take_given(const RendezvousRecord& record) {
  const auto from = static_cast<size_t>(record.rank);
  if (collected_) {  // nobody is ahead of rank 0
    if (options_.rank != 0 || record.round != round_) return;
    const auto nonce = static_cast<uint32_t>(record.nonce);
    if (nonces_[from] != 0 && nonces_[from] != nonce) clash_ = two_claim(record.rank);
    nonces_[from] = nonce;
    here_[from] = true;
    longest_ = std::max(longest_, record.body.size());
    return;
  }
  if (record.round != round_ && record.round != round_ + 1) return;
  auto& slot = (record.round == round_ ? given_ : given_next_)[from];
  if (slot && slot->nonce != record.nonce) clash_ = two_claim(record.rank);
  slot = Given{record.nonce, record.body};
}

bool Rendezvous::all_have_given() const {
  for (size_t rank = 0; rank < static_cast<size_t>(options_.size); ++rank) {
    if (!has_given(rank)) return false;
  }
  return true;
}

Status Rendezvous::missing(std::string_view what) const {
  std::string ranks;
  size_t count = 0;
  for (size_t i = 0; i < static_cast<size_t>(options_.size); ++i) {
    if (has_given(i) || ++count > kNamedMax) continue;
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

// A shared file system gives no events, so this looks again and again, at growing intervals. False: the
// patience is over.
template <class Came>
Result<bool> Rendezvous::look_until(Patience* patience, const Came& came) {
  for (Nanos pause = kPollFirst;; pause = std::min(2 * pause, kPollLast)) {
    SWALE_RETURN_IF_ERROR(look());
    if (came()) return true;
    if (patience->over(system_clock().now())) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
  }
}

Status Rendezvous::wait_for_session(Patience* patience) {
  SWALE_ASSIGN_OR_RETURN(const bool came, look_until(patience, [this] { return session_.has_value(); }));
  if (came) {
    directory_.rewind();  // records of our session that came before we knew it
    return ok_status();
  }
  if (collected_)
    SWALE_RETURN_IF_ERROR(directory_.scan_again([this](const RendezvousRecord& record) { take(record); }));
  return error(Code::kDeadlineExceeded, Scope::kFatal,
               "rank {} waited {:g} s in {} for rank 0 of {} ({}): was it started, does it see this "
               "directory, and has it the same job id (\"{}\")?",
               options_.rank, to_seconds(limit_), directory_.path(), options_.size,
               seen_[0] ? "which has said hello, or an earlier job's has" : "never seen", options_.job_id);
}

Status Rendezvous::wait_for_all(Patience* patience) {
  SWALE_ASSIGN_OR_RETURN(const bool came, look_until(patience, [this] { return all_have_given(); }));
  return came ? ok_status() : missing(fmt::format("give to allgather {}", round_));
}

Result<std::vector<std::string>> Rendezvous::gather(Bytes mine) {
  SWALE_RETURN_IF_ERROR(check_gathered_bytes(mine.size()));
  Patience patience(limit_, system_clock().now());
  if (!session_) SWALE_RETURN_IF_ERROR(wait_for_session(&patience));
  SWALE_RETURN_IF_ERROR(append(RendezvousKind::kGather, mine));
  SWALE_RETURN_IF_ERROR(wait_for_all(&patience));
  std::vector<std::string> all;
  for (auto& each : given_) all.push_back(std::move(each->bytes));
  given_ = std::exchange(given_next_, std::vector<std::optional<Given>>(given_.size()));
  ++round_;
  return all;
}

// ---- large jobs

// The files are read twice: until all ranks have given, and then for what they gave, which goes to a file at
// once, row after row: nothing of it is kept in memory.
Result<RankTable> Rendezvous::collect(Bytes mine, const std::string& path,
                                      const std::function<void(Rank, Bytes)>& visit) {
  SWALE_RETURN_IF_ERROR(check_gathered_bytes(mine.size()));
  here_.assign(here_.size(), false);
  here_[0] = true;
  longest_ = std::max<size_t>(1, mine.size());
  Patience patience(limit_, system_clock().now());
  SWALE_RETURN_IF_ERROR(wait_for_all(&patience));
  SWALE_ASSIGN_OR_RETURN(RankTable table, RankTable::create(path, {options_.size, longest_, longest_}));
  Status status;
  int32_t rows = 0;
  const auto keep = [&](Rank rank, Bytes bytes) {
    ++rows;
    if (status.ok()) status = table.put(rank, 0, bytes);
    visit(rank, bytes);
  };
  keep(0, mine);
  SWALE_RETURN_IF_ERROR(directory_.scan_again([&](const RendezvousRecord& each) {
    const bool of_round =
        each.kind == RendezvousKind::kGather && each.session == session_ && each.round == round_;
    if (of_round && each.rank > 0 && each.rank < options_.size && each.body.size() <= longest_)
      keep(each.rank, each.body);
  }));
  if (status.ok()) status = table.flush();
  SWALE_RETURN_IF_ERROR(status);
  if (rows == options_.size) return table;
  return error(
      Code::kCorruption, Scope::kFatal,
      "{}: {} ranks of {} had given to allgather {}, and {} of them could be read again: has somebody "
      "changed its files?",
      directory_.path(), options_.size, options_.size, round_, rows);
}

Result<std::string> Rendezvous::survey_all(Bytes mine, Survey* survey) {
  const std::string path = directory_.addresses_path(*session_) + ".given";
  const Result<RankTable> all = collect(mine, path, [](Rank, Bytes) {});
  ::unlink(path.c_str());
  SWALE_RETURN_IF_ERROR(all.status());
  for (Rank rank = 0; rank < options_.size; ++rank) {
    SWALE_ASSIGN_OR_RETURN(const std::string row, all->row(rank));
    survey->take(rank, 0, row);
  }
  return survey->answer();
}

// The answer: varint length of a row | varint 1 + the lowest rank without an address, or 0.
Result<std::string> Rendezvous::collect_addresses(Bytes mine) {
  Rank without = options_.size;
  SWALE_ASSIGN_OR_RETURN(const RankTable table,
                         collect(mine, directory_.addresses_path(*session_), [&](Rank rank, Bytes row) {
                           if (!has_address(row)) without = std::min(without, rank);
                         }));
  std::string answer;
  append_varint(&answer, table.shape().row_bytes);
  append_varint(&answer, without == options_.size ? 0 : static_cast<uint64_t>(without) + 1);
  return answer;
}

// A failure of rank 0 is told to all: only rank 0 knows whom it has waited for.
Result<std::string> Rendezvous::tell(const Result<std::string>& answer) {
  std::string body;
  append_u8(&body, answer.ok() ? kAnswered : kMeetingFailed);
  body += answer.ok() ? *answer : encode_status(answer.status());
  const Status told = directory_.append_answer(make_record(RendezvousKind::kAnswer, body));
  ++round_;
  SWALE_RETURN_IF_ERROR(answer.status());
  SWALE_RETURN_IF_ERROR(told);
  return answer;
}

Result<std::string> Rendezvous::read_answer(Bytes body) const {
  if (body.starts_with(kAnswered)) return std::string(body.substr(1));
  Status theirs;
  SWALE_RETURN_IF_ERROR(decode_status(body.substr(std::min<size_t>(1, body.size())), &theirs));
  if (!theirs.ok()) return theirs;
  return corruption("{}: an answer of {} bytes is none", directory_.path(), body.size());
}

Result<std::string> Rendezvous::ask_rank_zero(Bytes mine) {
  SWALE_RETURN_IF_ERROR(check_gathered_bytes(mine.size()));
  Patience patience(limit_, system_clock().now());
  if (!session_) SWALE_RETURN_IF_ERROR(wait_for_session(&patience));
  SWALE_RETURN_IF_ERROR(append(RendezvousKind::kGather, mine));
  // Rank 0 may have begun to wait later, and then says for whom.
  Patience longer(2 * limit_, system_clock().now());
  SWALE_ASSIGN_OR_RETURN(const bool came, look_until(&longer, [this] { return answer_.has_value(); }));
  if (!came) {
    return error(Code::kDeadlineExceeded, Scope::kFatal,
                 "rank {} waited {:g} s in {} for rank 0 to answer allgather {}: has it ended?",
                 options_.rank, to_seconds(2 * limit_), directory_.path(), round_);
  }
  const Result<std::string> answer = read_answer(*answer_);
  answer_.reset();
  ++round_;
  return answer;
}

Result<std::string> Rendezvous::ask(Bytes mine, Survey* survey) {
  if (collected_) return options_.rank == 0 ? tell(survey_all(mine, survey)) : ask_rank_zero(mine);
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(mine));
  return answer_of(all, survey);
}

Result<std::shared_ptr<const AddressBook>> Rendezvous::publish(Bytes row, const NodeMap&) {
  if (!collected_) {
    SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(row));
    return make_book(all);
  }
  SWALE_ASSIGN_OR_RETURN(const std::string answer,
                         options_.rank == 0 ? tell(collect_addresses(row)) : ask_rank_zero(row));
  Decoder in(answer);
  const auto row_bytes = static_cast<size_t>(in.varint64());
  const auto without = static_cast<Rank>(in.varint32()) - 1;
  SWALE_RETURN_IF_ERROR(in.finish("where the addresses of the job stand"));
  if (row_bytes == 0 || row_bytes > kBytesMax || without >= options_.size)
    return corruption("{}: addresses of {} bytes", directory_.path(), row_bytes);
  SWALE_ASSIGN_OR_RETURN(RankTable table, RankTable::open(directory_.addresses_path(*session_),
                                                          {options_.size, row_bytes, row_bytes}));
  return make_book(std::move(table), without);
}

void Rendezvous::leave() {
  if (!joined_) return;
  if (!session_ || !directory_.own_records_stand()) return;  // never got in, or all is removed
  Status status = append(RendezvousKind::kBye, "");
  if (collected_ && options_.rank != 0 && status.ok()) return;  // rank 0 sees it, and removes all
  Patience patience(options_.rank == 0 ? options_.leave_wait : 0, system_clock().now());
  for (Nanos pause = kPollFirst; status.ok(); pause = std::min(2 * pause, kPollLast)) {
    status = directory_.scan([this](const RendezvousRecord& record) { take(record); });
    const bool all_gone = std::find(gone_.begin(), gone_.end(), false) == gone_.end();
    const bool over = patience.over(system_clock().now());
    if (all_gone || (over && options_.rank == 0)) return directory_.remove_all();
    if (over || !directory_.own_records_stand()) return;  // the last one has removed all
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
