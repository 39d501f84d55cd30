// AddressBook: where the ranks of a job can be reached, looked up one rank at a time, when it is met. What
// the ranks give each other while a job is opened becomes one (Bootstrap::publish).
//
// Threads: any. Errors: a row that is damaged, or another rank's, is kCorruption and names the rank.
// Format of a row (little-endian): u8 kind: 1 an address, 2 the rank has none | u64 xxh3 of all that follows
// | u32 rank |
//   sized host | sized address, or why there is none; then zeros.
// Limits: an address has at most kAddressBytesMax bytes; longer texts are cut.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/fabric/rank_table.h"
#include "net/fabric/transport.h"

namespace swale::net {

struct RankAddress {
  std::string host;     // for messages
  std::string address;  // as Transport::address gave it
};

inline constexpr size_t kAddressBytesMax = 4 * kKiB;

// What a rank gives: its address, or why it has none.
std::string encode_address(Rank rank, Bytes host, const Result<std::string>& address);
// The failure says what the rank said, or that the bytes are no row of that rank.
Result<RankAddress> decode_address(Rank rank, Bytes row);
// Whether the first bytes of a row say that there is an address.
bool has_address(Bytes row);

class AddressBook {
 public:
  explicit AddressBook(RankTable rows) : rows_(std::move(rows)) {}

  int32_t ranks() const { return rows_.shape().ranks; }
  Result<RankAddress> find(Rank rank) const;
  std::string host_of(Rank rank) const;  // "unknown" if its row cannot be read

  uint64_t private_bytes() const { return rows_.is_private() ? rows_.bytes() : 0; }
  uint64_t shared_bytes() const { return rows_.bytes() - private_bytes(); }

 private:
  RankTable rows_;
};

// The book of these rows, or the failure of the lowest rank that has no address.
Result<std::shared_ptr<const AddressBook>> make_book(const std::vector<std::string>& rows);
// The same, where it is known which is the lowest such rank; -1: none.
Result<std::shared_ptr<const AddressBook>> make_book(RankTable rows, Rank without);

}  // namespace swale::net
