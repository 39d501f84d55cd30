// What nodes of a job's file system say to each other, and the log of paths. Input: 1 byte that says what,
// then its bytes. What decodes encodes to something that decodes, and encodes to the same again. What of the
// log of paths is read is there after the next opening, too.
#include <cstdlib>

#include "fs/locks/lock_messages.h"
#include "fs/losses/left_details.h"
#include "fs/losses/node_survey.h"
#include "fs/node/known_paths.h"
#include "fs/peers/peer_messages.h"
#include "fs/share/share_messages.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "io/memory_device.h"

namespace swale::fs::fs_messages_fuzz {
namespace {

using fuzz::require;

template <class Message>
void check(Result<Message> (*decode)(Bytes), Bytes bytes) {
  const auto first = decode(bytes);
  if (!first.ok()) {
    require(first.status().code() == Code::kCorruption);
    return;
  }
  const std::string text = encode(*first);
  const auto again = decode(text);
  require(again.ok());
  require(encode(*again) == text);
}

void check_survey(Bytes bytes) {
  check(decode_survey, bytes);
  const auto survey = decode_survey(bytes);
  if (!survey.ok()) return;
  for (const auto& [file, logged] : survey->logs)
    logged.orders.visit(kEachByte, [](const Span& span, uint64_t) {
      require(span.begin < span.end && span.end <= meta::kOffsetEnd);
    });
}

constexpr char kFolder[] = "/paths";
constexpr uint16_t kRecordKind = 1;

// A record that is whole, with any content.
void check_paths(Bytes payload) {
  io::MemoryDevice device;
  require(io::make_directories(device, kFolder).ok());
  {
    auto log =
        StateLog::open(device, {kFolder, "paths-", kKnownPathsKind, kRecordKind}, [](Bytes) { return true; });
    require(log.ok());
    require((*log)->begin(StateLog::new_record().append(payload)).ok());
  }
  const auto paths = KnownPaths::open(device, kFolder);
  if (!paths.ok()) {
    require(paths.status().code() == Code::kCorruption && !paths.status().message().empty());
    return;
  }
  const KnownPaths::Paths read = (*paths)->paths();
  require((*paths)->put({1, 2}, "one more").ok());
  const auto again = KnownPaths::open(device, kFolder);
  require(again.ok());
  KnownPaths::Paths expected = read;
  expected[{1, 2}] = "one more";
  require((*again)->paths() == expected);
}

// A log that is any bytes.
void check_log(Bytes bytes) {
  io::MemoryDevice device;
  require(io::make_directories(device, kFolder).ok());
  require(io::replace_file(device, std::string(kFolder) + "/paths-1", bytes).ok());
  const auto paths = KnownPaths::open(device, kFolder);
  require(paths.ok() || !paths.status().message().empty());
}

}  // namespace

SWALE_FUZZ_TARGET(fs_messages_fuzz) {
  if (size == 0) return 0;
  const Bytes bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 's':
      check_survey(bytes);
      break;
    case 'D':
      check(decode_left_details, bytes);
      break;
    case 'p':
      check_paths(bytes);
      break;
    case 'l':
      check_log(bytes);
      break;
    case 'r':
      check(decode_share_request, bytes);
      break;
    case 'a':
      check(decode_share_answer, bytes);
      break;
    case 'f':
      check(decode_fetch_request, bytes);
      break;
    case 'b':
      check(decode_begin_step, bytes);
      break;
    case 'd':
      check(decode_drain_step, bytes);
      break;
    case 'F':
      check(decode_file_step, bytes);
      break;
    case 'P':
      check(decode_pages_answer, bytes);
      break;
    case 'w':
      check(decode_drain_wish, bytes);
      break;
    case 'n':
      check(decode_name_news, bytes);
      break;
    case 'e':
      check(decode_seal_step, bytes);
      break;
    case 'E':
      check(decode_seal_answer, bytes);
      break;
    case 'm':
      check(decode_lock_message, bytes);
      break;
    case 'M':
      check(decode_lock_answer, bytes);
      break;
    default:
      break;
  }
  return 0;
}

}  // namespace swale::fs::fs_messages_fuzz
