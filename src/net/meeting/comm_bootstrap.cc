// The Bootstrap over the caller's communicator, which has an allgather of equal sizes and nothing else. So
// all that the ranks give passes by every rank, in pieces that fit into one buffer. Lengths go first; shorter
// strings are filled up.
//
// A job whose rows of addresses fit into the buffer keeps them, and needs two calls. In a larger one the
// lowest rank of each node writes them to a file, and the calls are: lengths; the numbers of the files; the
// pieces; who has failed.
//
// Format. Each string is preceded by an allgather of the lengths (u64), and filled up with zeros to the
// longest. What does not fit into a buffer of 1 MiB comes in pieces of that many bytes divided by the
// ranks, rounded down to a multiple of 8 and at least 8. The file of a node is
// /dev/shm/swale-addresses-UID-NUMBER (or /tmp), mode 0600; NUMBER is drawn by the lowest rank of the
// node and told to all between lengths and rows (u64; 0: none). It has the first pieces of all ranks,
// then the second ones, and so on. After the rows each rank tells in a u64 whether it could write them.
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/coding.h"
#include "base/log.h"
#include "net/meeting/bootstrap.h"

namespace swale::net {
namespace {

constexpr size_t kWordBytes = sizeof(uint64_t);

class CommBootstrap : public Bootstrap {
 public:
  explicit CommBootstrap(CommCallbacks callbacks)
      : callbacks_(std::move(callbacks)), size_(static_cast<size_t>(callbacks_.size)) {}
  ~CommBootstrap() override { unlink_file(); }

  Rank rank() const override { return callbacks_.rank; }
  int32_t size() const override { return callbacks_.size; }
  Result<std::string> ask(Bytes mine, Survey* survey) override;
  Result<std::shared_ptr<const AddressBook>> publish(Bytes row, const NodeMap& nodes) override;

 private:
  Status call(const void* send, void* receive, size_t bytes);
  template <class Visit>
  Status gather_words(uint64_t mine, const Visit& visit);
  template <class Take>
  Status gather(Bytes mine, size_t longest, const Take& take);
  Result<size_t> longest_of(size_t mine);
  size_t piece_of(size_t longest) const;

  std::string path_in(const std::string& folder, uint64_t number) const {
    return fmt::format("{}/swale-addresses-{}-{:016x}", folder, ::geteuid(), number);
  }
  Result<RankTable> create_table(const RankTable::Shape& shape, uint64_t* number);
  Result<RankTable> open_table(const RankTable::Shape& shape, uint64_t number) const;
  Status share_table(const RankTable::Shape& shape, const NodeMap& nodes, std::optional<RankTable>* table,
                     bool* reads);
  void unlink_file() {
    if (!path_.empty()) ::unlink(path_.c_str());
    path_.clear();
  }

  const CommCallbacks callbacks_;
  const size_t size_;
  std::string path_;  // of the file that this rank has created and not unlinked yet
};

Status CommBootstrap::call(const void* send, void* receive, size_t bytes) {
  const int answer = callbacks_.allgather(send, receive, bytes);
  if (answer == 0) return ok_status();
  return error(Code::kUnavailable, Scope::kFatal,
               "the communicator's allgather of {} bytes failed with {} on rank {}", bytes, answer,
               callbacks_.rank);
}

// visit(rank, word) for every rank.
template <class Visit>
Status CommBootstrap::gather_words(uint64_t mine, const Visit& visit) {
  std::string received(kWordBytes * size_, '\0');
  SWALE_RETURN_IF_ERROR(call(&mine, received.data(), kWordBytes));
  const auto word_of = [&](size_t rank) { return get_u64(received.data() + kWordBytes * rank); };
  if (word_of(static_cast<size_t>(callbacks_.rank)) != mine) {
    return invalid_argument(
        "the communicator's allgather gave rank {} of {} another rank's bytes: are rank and size right?",
        callbacks_.rank, callbacks_.size);
  }
  for (size_t rank = 0; rank < size_; ++rank) visit(static_cast<Rank>(rank), word_of(rank));
  return {};
}

// A rank whose own string is too long says so in its length, so that all ranks fail together.
Result<size_t> CommBootstrap::longest_of(size_t mine) {
  uint64_t longest = 0;
  SWALE_RETURN_IF_ERROR(gather_words(mine, [&](Rank, uint64_t each) { longest = std::max(longest, each); }));
  SWALE_RETURN_IF_ERROR(check_gathered_bytes(longest));
  return static_cast<size_t>(longest);
}

size_t CommBootstrap::piece_of(size_t longest) const {
  const size_t share = callbacks_.bytes_max / size_ / kWordBytes * kWordBytes;
  return std::min(longest, std::max(share, kWordBytes));
}

// take(rank, offset, piece): in the order of Survey::take.
template <class Take>
Status CommBootstrap::gather(Bytes mine, size_t longest, const Take& take) {
  if (longest == 0) return {};
  std::string send(mine);
  send.resize(longest);
  std::string received(piece_of(longest) * size_, '\0');
  for (size_t offset = 0, bytes = 0; offset < longest; offset += bytes) {
    bytes = std::min(piece_of(longest), longest - offset);
    SWALE_RETURN_IF_ERROR(call(send.data() + offset, received.data(), bytes));
    for (size_t rank = 0; rank < size_; ++rank)
      take(static_cast<Rank>(rank), offset, Bytes(received).substr(rank * bytes, bytes));
  }
  return {};
}

Result<std::string> CommBootstrap::ask(Bytes mine, Survey* survey) {
  SWALE_ASSIGN_OR_RETURN(const size_t longest, longest_of(mine.size()));
  SWALE_RETURN_IF_ERROR(gather(
      mine, longest, [&](Rank rank, size_t offset, Bytes piece) { survey->take(rank, offset, piece); }));
  return survey->answer();
}

Result<RankTable> CommBootstrap::create_table(const RankTable::Shape& shape, uint64_t* number) {
  uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) return errno_status(errno, "getrandom");
  random |= 1;  // 0: there is no file
  Status why = invalid_argument("no folder is given");
  for (const std::string& folder : callbacks_.folders) {
    Result<RankTable> made = RankTable::create(path_in(folder, random), shape);
    why = made.status();
    if (!made.ok()) continue;
    path_ = path_in(folder, random);
    *number = random;
    return made;
  }
  return why;
}

Result<RankTable> CommBootstrap::open_table(const RankTable::Shape& shape, uint64_t number) const {
  Status why = error(Code::kNotFound, Scope::kOperation, "the lowest rank of this node could create no file");
  if (number == 0) return why;
  for (const std::string& folder : callbacks_.folders) {
    Result<RankTable> opened = RankTable::open(path_in(folder, number), shape);
    if (opened.ok()) return opened;
    why = opened.status();
  }
  return why;
}

// The node's table. A rank that cannot have it keeps one of its own.
Status CommBootstrap::share_table(const RankTable::Shape& shape, const NodeMap& nodes,
                                  std::optional<RankTable>* table, bool* reads) {
  const Rank leader = nodes.rank_at(nodes.seat(callbacks_.rank).node, 0);
  uint64_t number = 0;
  Status why;
  const auto keep = [&](Result<RankTable> found) {
    why = found.status();
    if (found.ok()) table->emplace(*std::move(found));
  };
  if (leader == callbacks_.rank) keep(create_table(shape, &number));
  uint64_t leaders = 0;
  SWALE_RETURN_IF_ERROR(gather_words(number, [&](Rank rank, uint64_t each) {
    if (rank == leader) leaders = each;
  }));
  if (leader != callbacks_.rank) keep(open_table(shape, leaders));
  *reads = table->has_value() && leader != callbacks_.rank;
  if (table->has_value()) return {};
  if (leader == callbacks_.rank || leaders != 0) {
    log_warn("rank {} shares no file of addresses with the ranks of its node, and keeps {} bytes of them: {}",
             callbacks_.rank, static_cast<uint64_t>(shape.ranks) * shape.row_bytes, why.message());
  }
  table->emplace(RankTable::in_memory(shape));
  return {};
}

Result<std::shared_ptr<const AddressBook>> CommBootstrap::publish(Bytes row, const NodeMap& nodes) {
  SWALE_ASSIGN_OR_RETURN(const size_t longest, longest_of(row.size()));
  const RankTable::Shape shape{callbacks_.size, longest, piece_of(longest)};
  const bool small = shape.piece_bytes == longest;
  std::optional<RankTable> table;
  bool reads = false;
  if (small) {
    table.emplace(RankTable::in_memory(shape));
  } else {
    SWALE_RETURN_IF_ERROR(share_table(shape, nodes, &table, &reads));
  }
  Rank without = -1;
  Status written;
  SWALE_RETURN_IF_ERROR(gather(row, longest, [&](Rank rank, size_t offset, Bytes piece) {
    if (offset == 0 && without < 0 && !has_address(piece)) without = rank;
    if (!reads && written.ok()) written = table->put(rank, offset, piece);
  }));
  if (written.ok()) written = table->flush();
  unlink_file();  // who gave a piece had it open
  if (!small) {
    Rank failed = -1;
    SWALE_RETURN_IF_ERROR(gather_words(written.ok() ? 0 : 1, [&](Rank rank, uint64_t has_failed) {
      if (has_failed != 0 && failed < 0) failed = rank;
    }));
    SWALE_RETURN_IF_ERROR(written);
    if (failed >= 0) {
      return error(Code::kAborted, Scope::kFatal,
                   "rank {} could not write the addresses of all ranks to a file of its node; it says why",
                   failed);
    }
  }
  return make_book(*std::move(table), without);
}

}  // namespace

std::unique_ptr<Bootstrap> callback_bootstrap(CommCallbacks callbacks) {
  return std::make_unique<CommBootstrap>(std::move(callbacks));
}

}  // namespace swale::net
