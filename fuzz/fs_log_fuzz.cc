// A process's log in shared memory, as its server finds it: whatever stands in there, the server does not
// fail, hands out only bytes that are in the log, and another process's writes stay whole. And the index of
// a spilled chunk: what is decoded encodes to the same bytes.
// Input: the first byte says what follows; then 12-byte edits (offset u32, value u64) of a valid log.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/coding.h"
#include "base/crc32c.h"
#include "fs/log/log_writer.h"
#include "fs/log/node_logs.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "io/posix_device.h"

namespace swale::fs::fs_log_fuzz {
namespace {

using fuzz::require;

constexpr uint32_t kChunk = kChunkBytesMin;
constexpr uint32_t kSlots = 2;

class Collected : public SegmentConsumer {
 public:
  Status take(std::span<const Segment> segments) override {
    all.insert(all.end(), segments.begin(), segments.end());
    return {};
  }
  void damaged(const Status& status) override { require(!status.message().empty()); }
  std::vector<Segment> all;
};

// Two logs with some writes, made once.
class World {
 public:
  World() {
    base = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    base += "/swale-fuzz-XXXXXX";
    require(::mkdtemp(base.data()) != nullptr);
    options.memory_directory = base + "/node";
    options.shape.chunk_bytes = kChunk;
    options.shape.slots = kSlots;
    options.memory_bytes = 64 * kChunk;
    auto logs = NodeLogs::open(device, device, options);
    require(logs.ok());
    Collected nothing;
    for (uint32_t log = 1; log <= 2; ++log) {
      require((*logs)->add_log().ok());
      LogWriter writer;
      require(writer.attach(options.memory_directory.c_str(), log) == 0);
      for (uint64_t i = 0; i < 6; ++i) {
        const std::string bytes(100 + i, static_cast<char>('a' + i));
        require(writer.write({1, log}, i * 200, bytes.data(), bytes.size()) > 0);
        if (i == 2) require((*logs)->take(nothing).ok());
      }
      writer.detach();
    }
    logs->reset();
    for (uint32_t log = 1; log <= 2; ++log) images[log] = *io::read_file(device, path(log), 1 << 20);
  }
  ~World() { std::filesystem::remove_all(base); }
  std::string path(uint32_t log) const {
    return options.memory_directory + "/" + kLogPrefix + std::to_string(log);
  }
  void put_back(uint32_t log, const std::string& image) {
    auto file = device.open(
        path(log), std::filesystem::exists(path(log)) ? io::OpenMode::kReadWrite : io::OpenMode::kCreate);
    require(file.ok() && (*file)->pwrite(0, image).ok());
    std::filesystem::permissions(path(log),
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }

  std::string base;
  io::PosixDevice device;
  NodeLogsOptions options;
  std::string images[3];
};

// Makes the checksum of an entry that was edited right, so that the checks behind it are reached.
void mend_entry(std::string* image, uint64_t offset, uint32_t log) {
  const uint64_t place = offset < kPageBytes ? 0 : (offset - kPageBytes) % kChunk;
  if (place < kChunk - 20 * sizeof(LogEntry) || place >= kChunk - sizeof(ChunkHead)) return;
  char* const at = image->data() + offset / sizeof(LogEntry) * sizeof(LogEntry);
  EntryCopy copy{get_u64(at),
                 {get_u64(at + 8), get_u64(at + 16)},
                 get_u64(at + 24),
                 get_u32(at + 32),
                 get_u32(at + 36),
                 get_u64(at + 40),
                 0};
  put_u64(at + 48, check_of(copy, log));
}

void check_log(Bytes edits, bool mend) {
  static World world;
  std::string image = world.images[1];
  for (size_t at = 0; at + 12 <= edits.size(); at += 12) {
    uint64_t where = get_u32(edits.data() + at) % (image.size() - 8);
    // Half of the edits go to the entries and the head of the first chunk.
    if ((where & 1) != 0) where = kPageBytes + kChunk - 8 - where % (8 * 64) / 8 * 8;
    put_u64(image.data() + where, get_u64(edits.data() + at + 4));
    if (mend) mend_entry(&image, where, 1);
  }
  world.put_back(1, image);
  world.put_back(2, world.images[2]);
  auto logs = NodeLogs::open(world.device, world.device, world.options);
  require(logs.ok());
  Collected found;
  require((*logs)->recover(found).ok());
  require((*logs)->take(found).ok());
  require((*logs)->serve().ok());
  for (const uint32_t log : (*logs)->logs()) require((*logs)->end_log(log, found).ok());
  uint64_t whole = 0;
  for (const Segment& segment : found.all) {
    std::string bytes(segment.length, '\0');
    require(segment.place.address % kChunk + segment.length <= kChunk);
    const Status read = (*logs)->read(segment.place, bytes);
    if (segment.place.log == 1) continue;
    const uint64_t i = segment.offset / 200;
    require(read.ok() && bytes == std::string(100 + i, static_cast<char>('a' + i)));
    ++whole;
  }
  require(whole == 6);
}

void check_spill(Bytes input, bool mend) {
  std::string bytes(input);
  if (mend && bytes.size() >= kSpillTrailerBytes) {
    char* const trailer = bytes.data() + bytes.size() - kSpillTrailerBytes;
    put_u64(trailer, kSpillMagic);
    put_u32(trailer + 8, kSpillVersion);
    put_u32(trailer + 60, crc32c(Bytes(trailer, 60)));
  }
  const auto index = decode_spill_index(bytes, 0, "spill");
  if (!index.ok()) return;
  require(encode_spill_index(*index) == bytes.substr(index->used));
}

}  // namespace

SWALE_FUZZ_TARGET(fs_log_fuzz) {
  const Bytes input = fuzz::as_bytes(data, size);
  if (input.empty()) return 0;
  const bool mend = (input[0] & 1) != 0;
  if ((input[0] & 2) != 0)
    check_spill(input.substr(1), mend);
  else
    check_log(input.substr(1), mend);
  return 0;
}

}  // namespace swale::fs::fs_log_fuzz
