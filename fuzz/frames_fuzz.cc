// What comes from other ranks, below the protocols: frame headers, and their order and credits (Router);
// messages of the job's exchanges (ExchangeTree). Input: records of 1 byte that says what happens, 1 byte a
// length, and so many bytes.
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "net/meeting/exchange.h"
#include "net/route/router.h"

namespace swale::frames_fuzz {
namespace {

using namespace swale::net;

constexpr uint64_t kSecret = 7;

struct Machine {
  Router router{{.rank = 1, .size = 4, .channel = 2, .secret = kSecret, .window = 2}};
  ExchangeTree tree{1, 20};
  int unconsumed = 0;
  bool down = false;
};

void on_header(Machine* machine, Bytes frame) {
  const Bytes bytes = frame.substr(0, FrameHeader::kBytes);
  const Bytes payload = frame.substr(bytes.size());
  const auto header = FrameHeader::decode(bytes, payload, kSecret);
  if (!header.ok()) return;
  const auto encoded = header->encode(payload);
  fuzz::require(Bytes(encoded.data(), encoded.size()) == bytes);
  const bool taken = machine->router.on_frame(0, *header).ok() && header->kind == FrameKind::kData;
  if (taken && !machine->down) ++machine->unconsumed;
  fuzz::require(machine->unconsumed <= 2);
}

void step(Machine* machine, uint8_t what, Bytes bytes) {
  switch (what % 8) {
    case 0:
      return on_header(machine, bytes);
    case 1:  // a header that is right but for a few numbers
      if (bytes.size() >= 4) {
        FrameHeader header{.channel = 2, .secret = kSecret};
        header.sequence = static_cast<uint8_t>(bytes[0]);
        header.credits = static_cast<uint8_t>(bytes[1]);
        header.kind = static_cast<FrameKind>(static_cast<uint8_t>(bytes[2]) % 6);
        const auto encoded = header.encode({});
        on_header(machine, {encoded.data(), encoded.size()});
      }
      return;
    case 2:
      if (machine->unconsumed > 0) {
        machine->router.consumed(0);
        --machine->unconsumed;
      }
      return;
    case 3:
      return machine->router.submit(0, FrameKind::kData, bytes, 1);
    case 4:
      for (int i = 0; i < 4 && machine->router.next_post(); ++i) {
      }
      return;
    case 5:
      return machine->tree.on_message(static_cast<Rank>(9 + bytes.size() % 12),
                                      bytes);  // its children, and strangers
    case 6:
      return machine->tree.on_message(0, bytes);
    default:
      if (!bytes.empty() && bytes[0] == 'd') {
        std::vector<uint64_t> dropped;
        machine->router.on_down(0, &dropped);
        machine->down = true;
      } else if (!bytes.empty() && bytes[0] == 'b') {
        static_cast<void>(machine->tree.take());
      }
  }
}

}  // namespace

SWALE_FUZZ_TARGET(frames_fuzz) {
  Machine machine;
  machine.tree.begin("mine", size % 2 == 0 ? ExchangeTree::Answer::kAll : ExchangeTree::Answer::kLeast);
  Bytes input = fuzz::as_bytes(data, size);
  while (input.size() >= 2) {
    const auto what = static_cast<uint8_t>(input[0]);
    const Bytes bytes = input.substr(2, static_cast<uint8_t>(input[1]));
    input.remove_prefix(2 + bytes.size());
    step(&machine, what, bytes);
    static_cast<void>(machine.tree.take_outgoing());
  }
  return 0;
}

}  // namespace swale::frames_fuzz
