// A sorted file: up to 256 blocks of 4 KiB with a metadata region that says where each one's key range begins
// (metakv, III-A, Fig. 4), and the cache of such blocks.
//
//   file     := block_page{blocks} metadata trailer
//   block_page: a block (block.h) at a multiple of 4,096, zeros after it
//   metadata := (file.low u64 | file.high u64 | offset u64 | crc u32 | bytes u32){blocks}  32 bytes a block
//   trailer  := magic u32 | crc u32 | version u16 | 0 u16 | blocks u32 | entries u64 | sequence_min u64 |
//            sequence_max u64 |
//               metadata_crc u32 | 0 u32 | owner u64 | 0 u64  64 bytes; crc of everything after it
//
// Each block's checksum stands in the metadata as well as in the block: a block that was written to another
// place is found. `owner` is a number that the manifest repeats, so that another file under the right name is
// found too.
//
// Threads: read_all by any thread; view, fetch and the cache by the shard's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/device.h"
#include "meta/index/shard.h"
#include "meta/index/tree.h"

namespace swale::meta {

inline constexpr size_t kSortedFileBlocks = 256;
inline constexpr size_t kSortedTrailerBytes = 64;
inline constexpr size_t kSortedMetadataBytes = 32;
inline constexpr uint32_t kSortedMagic = 0x464d7753;  // "SwMF"
inline constexpr uint16_t kSortedVersion = 1;

class SortedFile;

// Blocks of sorted files in memory: a fixed number of frames, the clock chooses who leaves. Beside them, the
// rows of the block that was decoded last: requests that follow one another mostly want the same one.
class BlockCache {
 public:
  explicit BlockCache(uint64_t bytes);
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  static constexpr size_t kFrameBytes = kBlockBytes + 64;
  static constexpr uint32_t kNone = ~uint32_t{0};

  size_t frames() const { return frames_.size(); }
  uint64_t memory_bytes() const { return filled_ * kFrameBytes + decoded_.view.owned_bytes(); }
  // A frame for (file, block), whoever had it loses it.
  uint32_t take(SortedFile* file, uint32_t block);
  void give_back(uint32_t frame);
  char* data(uint32_t frame) { return frames_[frame].bytes.get(); }
  void touch(uint32_t frame) { frames_[frame].used = true; }
  void clear();

  // nullptr: not this one.
  const BlockView* decoded(const SortedFile* file, size_t block) const {
    return decoded_.file == file && decoded_.block == block ? &decoded_.view : nullptr;
  }
  // Requires view.owns_rows().
  void keep_decoded(const SortedFile* file, size_t block, const BlockView& view);
  void forget_decoded(const SortedFile* file);

 private:
  struct Decoded {
    const SortedFile* file = nullptr;
    size_t block = 0;
    BlockView view;
  };
  struct Frame {
    std::unique_ptr<char[]> bytes;
    SortedFile* owner = nullptr;
    uint32_t block = 0;
    bool used = false;
  };
  std::vector<Frame> frames_;
  Decoded decoded_;
  size_t hand_ = 0;
  uint64_t filled_ = 0;
};

class SortedFile : public BlockSet {
 public:
  struct About {
    uint64_t owner = 0;
    uint64_t entries = 0;
    Sequence sequence_min = 0, sequence_max = 0;
  };

  // Reads trailer and metadata. kCorruption unless the trailer names `owner`.
  static Result<std::shared_ptr<SortedFile>> open(io::Device& device, const std::string& path, uint64_t owner,
                                                  BlockCache* cache, ShardCounters* counters);
  ~SortedFile() override;

  const About& about() const { return about_; }
  const std::string& path() const { return file_->path(); }

  Result<BlockView> view(size_t block) override;
  bool cached(size_t block) const { return frame_of_[block] != BlockCache::kNone; }
  // Reads blocks [first, first + count) with one read into the cache.
  Status fetch(size_t first, size_t count);
  Status read_all(std::string* bytes, std::vector<Bytes>* blocks) const override;
  std::string name() const override { return file_->path(); }
  uint64_t stored_bytes() const override {
    return blocks() * (kBlockBytes + kSortedMetadataBytes) + kSortedTrailerBytes;
  }
  size_t memory_bytes() const override;

 private:
  friend class BlockCache;
  SortedFile() = default;
  Status check_block(size_t block, Bytes page, Bytes* bytes) const;

  About about_;
  std::unique_ptr<io::File> file_;
  std::vector<uint32_t> crcs_;
  std::vector<uint32_t> frame_of_;
  BlockCache* cache_ = nullptr;
  ShardCounters* counters_ = nullptr;
  std::string scratch_;
};

// Collects blocks in ascending order and writes a durable file (its name is not durable before a sync of the
// directory).
class SortedFileWriter {
 public:
  void add(const Key& first, Bytes block, size_t rows);
  size_t blocks() const { return pages_.size() / kBlockBytes; }
  bool full() const { return blocks() == kSortedFileBlocks; }
  // Writes and syncs a new file, and becomes empty. The sequences are those of its table.
  Result<uint64_t> write(io::Device& device, const std::string& path, uint64_t owner, Sequence sequence_min,
                         Sequence sequence_max);

 private:
  std::string pages_, metadata_;
  uint64_t entries_ = 0;
};

}  // namespace swale::meta
