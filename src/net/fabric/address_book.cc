#include "net/fabric/address_book.h"

#include <algorithm>
#include <utility>

#include "base/coding.h"
#include "base/hash.h"

namespace swale::net {
namespace {

// DO NOT CHANGE THESE VALUES: ranks of one job may run different builds.
constexpr uint8_t kAddress = 1;
constexpr uint8_t kNone = 2;
constexpr size_t kChecked = 9;  // offset of the first byte under the checksum
constexpr size_t kHostBytesMax = 255;

}  // namespace

std::string encode_address(Rank rank, Bytes host, const Result<std::string>& address) {
  const std::string text = address.ok() ? *address : std::string(address.status().message());
  std::string row;
  append_u8(&row, address.ok() ? kAddress : kNone);
  append_u64(&row, 0);
  append_u32(&row, static_cast<uint32_t>(rank));
  append_sized(&row, host.substr(0, kHostBytesMax));
  append_sized(&row, Bytes(text).substr(0, kAddressBytesMax));
  put_u64(row.data() + 1, hash_bytes(Bytes(row).substr(kChecked)));
  return row;
}

bool has_address(Bytes row) { return !row.empty() && static_cast<uint8_t>(row[0]) == kAddress; }

Result<RankAddress> decode_address(Rank rank, Bytes row) {
  Decoder in(row);
  const uint8_t kind = in.u8();
  const uint64_t checksum = in.u64();
  const uint32_t of = in.u32();
  const Bytes host = in.sized();
  const Bytes text = in.sized();
  const bool whole = in.ok() && (kind == kAddress || kind == kNone) && !text.empty() &&
                     hash_bytes(row.substr(kChecked, row.size() - kChecked - in.remaining())) == checksum;
  if (!whole || of != static_cast<uint32_t>(rank)) {
    return error(Code::kCorruption, Scope::kFatal,
                 "the address of rank {} is damaged, or another rank's ({} bytes): do all ranks run the same "
                 "version of Swale?",
                 rank, row.size());
  }
  if (kind == kNone) {
    return error(Code::kAborted, Scope::kFatal, "rank {} (host {}) could not start its transport: {}", rank,
                 host, text);
  }
  return RankAddress{std::string(host), std::string(text)};
}

Result<RankAddress> AddressBook::find(Rank rank) const {
  SWALE_ASSIGN_OR_RETURN(const std::string row, rows_.row(rank));
  return decode_address(rank, row);
}

std::string AddressBook::host_of(Rank rank) const {
  Result<RankAddress> found = find(rank);
  return found.ok() ? std::move(found->host) : "unknown";
}

Result<std::shared_ptr<const AddressBook>> make_book(const std::vector<std::string>& rows) {
  size_t longest = 1;
  for (const std::string& each : rows) longest = std::max(longest, each.size());
  RankTable table = RankTable::in_memory({static_cast<int32_t>(rows.size()), longest, longest});
  Rank without = -1;
  for (size_t i = rows.size(); i-- > 0;) {
    SWALE_RETURN_IF_ERROR(table.put(static_cast<Rank>(i), 0, rows[i]));
    if (!has_address(rows[i])) without = static_cast<Rank>(i);
  }
  return make_book(std::move(table), without);
}

Result<std::shared_ptr<const AddressBook>> make_book(RankTable rows, Rank without) {
  auto book = std::make_shared<const AddressBook>(std::move(rows));
  if (without >= 0) SWALE_RETURN_IF_ERROR(book->find(without).status());
  return std::shared_ptr<const AddressBook>(std::move(book));
}

}  // namespace swale::net
