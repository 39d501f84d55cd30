#include "imd/optimize/pass_ranks.h"

#include <algorithm>

#include "base/coding.h"
#include "net/job/agree.h"

namespace swale::imd {
namespace {

// A rank gives at most Bootstrap::kBytesMax in one call.
constexpr size_t kPieceBytes = 32 * kKiB;
constexpr size_t kTalliesAtOnce = 1'024;
static_assert(kTalliesAtOnce * sizeof(RecordTally) <= net::Bootstrap::kBytesMax);

std::string encode(std::span<const RecordTally> tallies) {
  std::string bytes;
  for (const RecordTally& tally : tallies) {
    append_u64(&bytes, tally.records);
    append_u64(&bytes, tally.data_bytes);
    append_u64(&bytes, tally.digest);
  }
  return bytes;
}

}  // namespace

std::string PassOrder::encode() const {
  std::string bytes;
  append_u32(&bytes, number);
  append_u64(&bytes, epochs_left);
  append_u32(&bytes, static_cast<uint32_t>(epochs.size()));
  for (const ClusterEntry::Epoch& epoch : epochs) {
    append_u32(&bytes, epoch.epoch.value());
    append_u64(&bytes, epoch.epoch_id);
  }
  append_u32(&bytes, static_cast<uint32_t>(sources.size()));
  for (const uint32_t source : sources) append_u32(&bytes, source);
  return bytes;
}

Result<PassOrder> PassOrder::decode(Bytes bytes) {
  Decoder in(bytes);
  PassOrder order;
  order.number = in.u32();
  order.epochs_left = in.u64();
  for (uint32_t left = in.u32(); left > 0 && in.ok(); --left) {
    const EpochNumber epoch(in.u32());
    order.epochs.push_back({epoch, in.u64()});
  }
  for (uint32_t left = in.u32(); left > 0 && in.ok(); --left) order.sources.push_back(in.u32());
  SWALE_RETURN_IF_ERROR(in.finish("what rank 0 has decided"));
  return order;
}

HashRange PassRanks::range() const { return HashRange::of(static_cast<uint32_t>(job_.rank()), size()); }

Status PassRanks::agree(const Status& mine) { return net::agree(job_, mine); }

Status PassRanks::same(Bytes text, std::string_view what) {
  if (size() == 1) return {};
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, job_.allgather(text));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return invalid_argument("rank {} was given other {} than rank 0: {} and {}; give all ranks the same",
                            rank, what, all[rank], all[0]);
  }
  return {};
}

Result<std::string> PassRanks::from_first(Bytes text) {
  if (size() == 1) return std::string(text);
  std::string all;
  for (size_t at = 0;; at += kPieceBytes) {
    std::string piece;
    if (is_first()) {
      const Bytes part = text.substr(std::min(at, text.size()), kPieceBytes);
      piece.push_back(at + part.size() < text.size() ? 1 : 0);  // more comes
      piece.append(part);
    }
    SWALE_ASSIGN_OR_RETURN(const auto given, job_.given(piece));
    const auto of_first = given.find(0);
    if (of_first == given.end() || of_first->second.empty())
      return error(Code::kCorruption, Scope::kPeer, "rank 0 gave nothing; please report it");
    all.append(of_first->second, 1);
    if (of_first->second.front() == 0) return all;
  }
}

Result<std::vector<RecordTally>> PassRanks::sum(std::span<const RecordTally> mine) {
  std::vector<RecordTally> sums(mine.begin(), mine.end());
  if (size() == 1) return sums;
  std::ranges::fill(sums, RecordTally());
  for (size_t at = 0; at < sums.size(); at += kTalliesAtOnce) {
    const std::span<RecordTally> some =
        std::span(sums).subspan(at, std::min(kTalliesAtOnce, sums.size() - at));
    SWALE_ASSIGN_OR_RETURN(const auto all, job_.allgather(encode(mine.subspan(at, some.size()))));
    for (const std::string& one : all) {
      Decoder in(one);
      for (RecordTally& sum : some) {
        RecordTally tally;
        tally.records = in.u64();
        tally.data_bytes = in.u64();
        tally.digest = in.u64();
        sum.add(tally);
      }
      SWALE_RETURN_IF_ERROR(in.finish("what a rank has counted"));
    }
  }
  return sums;
}

}  // namespace swale::imd
