// What tests of a Bootstrap ask: everything that the ranks give.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/coding.h"
#include "net/meeting/bootstrap.h"

namespace swale::net {

// Gifts are sized: zeros may follow them.
class Everything final : public Survey {
 public:
  void take(Rank rank, size_t offset, Bytes piece) override {
    if (all_.size() <= static_cast<size_t>(rank)) all_.resize(static_cast<size_t>(rank) + 1);
    std::string& gift = all_[static_cast<size_t>(rank)];
    in_order_ = in_order_ && gift.size() == offset && (offset > last_offset_ || rank == last_ + 1);
    if (offset > last_offset_) in_order_ = in_order_ && rank == 0;
    last_ = rank;
    last_offset_ = offset;
    gift.append(piece);
  }
  std::string answer() override {
    std::string answer;
    for (const std::string& gift : all_)
      append_sized(&answer, in_order_ ? Decoder(gift).sized() : "in disorder");
    return answer;
  }

 private:
  std::vector<std::string> all_;
  bool in_order_ = true;
  Rank last_ = -1;
  size_t last_offset_ = 0;
};

inline Result<std::vector<std::string>> allgather(Bootstrap& bootstrap, Bytes mine) {
  std::string gift;
  append_sized(&gift, mine);
  Everything survey;
  SWALE_ASSIGN_OR_RETURN(const std::string answer, bootstrap.ask(gift, &survey));
  std::vector<std::string> all;
  Decoder in(answer);
  while (in.ok() && in.remaining() > 0) all.emplace_back(in.sized());
  SWALE_RETURN_IF_ERROR(in.status("the answer"));
  return all;
}

// An equal-size allgather, as MPI's, over a local group.
inline CommCallbacks callbacks(Rank rank, const std::shared_ptr<LocalGroup>& group) {
  CommCallbacks out;
  out.rank = rank;
  out.size = group->size();
  out.allgather = [rank, group](const void* send, void* receive, size_t bytes) {
    const auto all = group->allgather(rank, Bytes(static_cast<const char*>(send), bytes));
    if (!all.ok()) return 1;
    for (size_t i = 0; i < all->size(); ++i) {
      if ((*all)[i].size() != bytes) return 2;
      std::memcpy(static_cast<char*>(receive) + i * bytes, (*all)[i].data(), bytes);
    }
    return 0;
  };
  return out;
}

}  // namespace swale::net
