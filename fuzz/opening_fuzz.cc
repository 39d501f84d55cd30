// What a rank is told while a job is opened: the answer of all ranks' meeting, and the row of a rank in the
// AddressBook.
// Input: u8 of the size of the job, then the answer; the same bytes as a row.
#include "base/coding.h"
#include "base/hash.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "net/fabric/address_book.h"
#include "net/job/job_meeting.h"

namespace swale::opening_fuzz {
namespace {

using namespace swale::net;

class Told final : public Bootstrap {
 public:
  Told(int32_t size, Bytes answer) : size_(size), answer_(answer) {}
  Rank rank() const override { return 0; }
  int32_t size() const override { return size_; }
  Result<std::string> ask(Bytes, Survey*) override { return std::string(answer_); }
  Result<std::shared_ptr<const AddressBook>> publish(Bytes row, const NodeMap&) override {
    return make_book(std::vector<std::string>{std::string(row)});
  }

 private:
  const int32_t size_;
  const Bytes answer_;
};

}  // namespace

SWALE_FUZZ_TARGET(opening_fuzz) {
  Bytes input = fuzz::as_bytes(data, size);
  if (input.empty()) return 0;
  const int32_t ranks = 1 + static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  Told told(ranks, input);
  if (const auto met = meet(told, {}); met.ok()) fuzz::require(met->node_map->ranks() == ranks);

  static_cast<void>(decode_address(1, input));
  // With the checksum made right, what is behind it is reached; and what is read is what would be written.
  if (input.size() < 13) return 0;
  std::string row(input);
  put_u64(row.data() + 1, hash_bytes(Bytes(row).substr(9)));
  const auto found = decode_address(1, row);
  if (!found.ok() || found->host.size() > 255 || found->address.size() > kAddressBytesMax) return 0;
  const auto again = decode_address(1, encode_address(1, found->host, found->address));
  fuzz::require(again.ok() && again->host == found->host && again->address == found->address);
  return 0;
}

}  // namespace swale::opening_fuzz
