// A block: up to kBlockRowsMax entries in at most 4 KiB, a column for each field (metakv, III-A). With the
// codec kFrame a row is read where it stands; with the other one the whole block is decoded first.
//
//   block   := crc u32 | bytes u32 | rows u16 | files u16 | codec u8 | version u8 | 0 u16 | file_id{files} |
//           payload
//   file_id := low u64 | high u64                         ascending in blocks of tables
//   payload := (codec kFrame)  column_header{columns} column_data{columns}
//            | (kDeltaZstd)    raw_bytes varint | coded columns                  docs/formats/meta-shard.md
//   columns := file (if files > 1), offset, length, log, address, sequence
//
// crc: CRC-32C of everything after it. The same layout carries the entries of a group in the write-ahead log,
// where rows are in order of arrival and a block may be larger.
// Threads: a BlockEncoder belongs to one thread; a BlockView is immutable.
// Errors: parse answers kCorruption for everything that is not a block; rows of a parsed block are within
// limits.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/codec.h"
#include "base/status.h"
#include "meta/index/column.h"
#include "meta/index/entries.h"
#include "meta/index/shard.h"

namespace swale::meta {

inline constexpr size_t kBlockBytes = 4 * kKiB;
inline constexpr size_t kBlockHeaderBytes = 20;
inline constexpr uint8_t kBlockVersion = 1;
inline constexpr size_t kBlockRowsMax = 8192;
inline constexpr size_t kBlockColumns = 6;  // file, offset, length, log, address, sequence

class BlockEncoder {
 public:
  static Result<std::unique_ptr<BlockEncoder>> create(BlockCodec codec);

  // Appends a block of the first rows, as many as fit into bytes_max (at least 4 KiB), and returns how many.
  size_t encode(std::span<const Entry> rows, const FileTable& files, size_t bytes_max, std::string* out);

 private:
  using Columns = std::array<std::vector<uint64_t>, kBlockColumns>;
  struct Attempt {
    BlockCodec codec = BlockCodec::kFrame;
    size_t rows = 0;
    std::string bytes;
  };

  BlockEncoder(BlockCodec codec, Compressor zstd) : codec_(codec), zstd_(std::move(zstd)) {}

  BlockCodec choose(std::span<const Entry> rows, const FileTable& files, size_t bytes_max);
  void fit(BlockCodec codec, std::span<const Entry> rows, const FileTable& files, size_t bytes_max,
           Attempt* out);
  void load(std::span<const Entry> rows, const FileTable& files);
  void build(BlockCodec codec, size_t rows, std::string* out);
  void append_frame(size_t rows, std::string* out);
  void append_coded(size_t rows, std::string* out);

  const BlockCodec codec_;
  Compressor zstd_;
  Columns columns_;
  std::vector<FileId> ids_;  // of the loaded rows
  std::string raw_, packed_;
  Attempt attempt_;
  std::array<size_t, 8> rows_guess_{};  // by codec
  BlockCodec chosen_ = BlockCodec::kFrame;
  unsigned until_next_choice_ = 0;
};

// Makes the file numbers of a block small and dense, in order of appearance.
class BlockView {
 public:
  // The bytes must outlive the view unless the codec is not kFrame, and be followed by kColumnSlackBytes of
  // memory. `where` names them in messages: "FILE: block 3". The checksum is not looked at if `trusted`.
  static Result<BlockView> parse(Bytes block, std::string_view where, bool trusted = false);
  // The length of the block that begins here, as its header says; 0 if there cannot be one.
  static size_t length_of(Bytes bytes);

  size_t rows() const { return rows_; }
  size_t files() const { return files_; }
  BlockCodec codec() const { return codec_; }
  // Whether it has rows of its own, so that the block's bytes need not outlive it. Copies share them.
  bool owns_rows() const { return decoded_ != nullptr; }
  size_t owned_bytes() const { return decoded_ == nullptr ? 0 : decoded_->capacity() * sizeof(uint64_t); }
  FileId file_id(size_t index) const { return {get_u64(ids_ + 16 * index + 8), get_u64(ids_ + 16 * index)}; }

  uint32_t file(size_t row) const { return files_ == 1 ? 0 : static_cast<uint32_t>(columns_[0][row]); }
  uint64_t offset(size_t row) const { return columns_[1][row]; }
  Entry row(size_t row) const {
    return {columns_[1][row],
            columns_[2][row],
            columns_[4][row],
            columns_[5][row],
            static_cast<LogId>(columns_[3][row]),
            file(row)};
  }
  // The last row that begins at (file, offset) or before; rows() if there is none. For blocks in order.
  size_t find(const FileId& file, uint64_t offset) const;

 private:
  size_t find_in_rows(size_t first, size_t end, uint64_t offset) const;
  Status check_rows(std::string_view where) const;

  size_t rows_ = 0, files_ = 0;
  BlockCodec codec_ = BlockCodec::kFrame;
  const char* ids_ = nullptr;
  std::array<ColumnView, kBlockColumns> columns_;
  std::shared_ptr<std::vector<uint64_t>> decoded_;
};

}  // namespace swale::meta
