#include "net/agree.h"

#include "net/job.h"
#include "net/status_codec.h"

namespace swale::net {

Status agree(const Allgather& allgather, const Status& mine) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, allgather(encode_status(mine)));
  if (all.size() == 1) return mine;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    Status theirs;
    SWALE_RETURN_IF_ERROR(decode_status(all[rank], &theirs));
    if (!theirs.ok()) return theirs.with_context(fmt::format("rank {}", rank));
  }
  return {};
}

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

}  // namespace

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
  if (first.rank < 0) return {};
  Status theirs;
  SWALE_RETURN_IF_ERROR(decode_status(first.text, &theirs));
  return theirs.with_context(fmt::format("rank {}", first.rank));
}

Status agree(Job& job, const Status& mine) { return agree(ranks_of(job), mine); }

}  // namespace swale::net
