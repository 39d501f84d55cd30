#include "net/job/agree.h"

#include "base/coding.h"
#include "net/fabric/status_codec.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::net {

Ranks ranks_of(Job& job) {
  return {job.rank(), job.size(), [&job](Bytes mine) { return job.least(mine); }};
}

namespace {

// Numbers with the highest byte first compare as bytes.
constexpr size_t kNumberBytes = sizeof(uint64_t);

std::string ordered(uint64_t number) {
  std::string bytes;
  for (size_t i = kNumberBytes; i-- > 0;) bytes.push_back(static_cast<char>(number >> 8 * i));
  return bytes;
}

Result<uint64_t> read_ordered(Bytes bytes) {
  if (bytes.size() < kNumberBytes)
    return error(Code::kCorruption, Scope::kPeer, "{} bytes of an exchange are no number", bytes.size());
  uint64_t number = 0;
  for (const char byte : bytes.substr(0, kNumberBytes)) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

// A gift is a one and the sized text, or nothing. The answer: u32 rank | its gift; or nothing.
class FirstWord final : public Survey {
 public:
  static constexpr char kSomething = 1;

  void take(Rank rank, size_t offset, Bytes piece) override {
    if (offset == 0 && rank_ < 0 && piece.starts_with(kSomething)) {
      rank_ = rank;
      append_u32(&answer_, static_cast<uint32_t>(rank));
    }
    if (rank == rank_) answer_.append(piece);
  }
  std::string answer() override { return std::move(answer_); }

  static Result<Word> read(Bytes answer) {
    if (answer.empty()) return Word();
    Decoder in(answer);
    const auto rank = static_cast<Rank>(in.u32());
    in.u8();
    const Bytes text = in.sized();  // zeros may follow
    SWALE_RETURN_IF_ERROR(in.status("what the first rank says"));
    return Word{rank, std::string(text)};
  }

 private:
  Rank rank_ = -1;
  std::string answer_;
};

// The merged status of all, of which `first` is the first failure.
Status merged(const Word& first) {
  if (first.rank < 0) return {};
  Status theirs;
  SWALE_RETURN_IF_ERROR(decode_status(first.text, &theirs));
  return theirs.with_context(fmt::format("rank {}", first.rank));
}

}  // namespace

Result<Word> first_word(Bootstrap& bootstrap, Bytes mine) {
  std::string gift;
  if (!mine.empty()) {
    gift.push_back(FirstWord::kSomething);
    append_sized(&gift, mine);
  }
  FirstWord survey;
  const Result<std::string> answer = bootstrap.ask(gift, &survey);
  return answer.ok() ? FirstWord::read(*answer) : answer.status();
}

// A rank's number stands before its text, so that the lowest rank's is the least.
Result<Word> first_word(const Ranks& ranks, Bytes mine) {
  const std::string told = mine.empty() ? "" : ordered(static_cast<uint64_t>(ranks.rank)) + std::string(mine);
  SWALE_ASSIGN_OR_RETURN(const std::string least, ranks.least(told));
  if (least.empty()) return Word();
  SWALE_ASSIGN_OR_RETURN(const uint64_t rank, read_ordered(least));
  return Word{static_cast<Rank>(rank), least.substr(kNumberBytes)};
}

Result<uint64_t> least_number(const Ranks& ranks, uint64_t mine) {
  SWALE_ASSIGN_OR_RETURN(const std::string least, ranks.least(ordered(mine)));
  return read_ordered(least);
}

Status agree(const Ranks& ranks, const Status& mine) {
  if (ranks.size == 1) return mine;
  SWALE_ASSIGN_OR_RETURN(const Word first, first_word(ranks, mine.ok() ? "" : encode_status(mine)));
  return merged(first);
}

Status agree(Bootstrap& bootstrap, const Status& mine) {
  if (bootstrap.size() == 1) return mine;
  SWALE_ASSIGN_OR_RETURN(const Word first, first_word(bootstrap, mine.ok() ? "" : encode_status(mine)));
  return merged(first);
}

Status agree(Job& job, const Status& mine) { return agree(ranks_of(job), mine); }

}  // namespace swale::net
