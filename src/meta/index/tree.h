// Trees and tables: compressed blocks in the order of their key ranges, in memory or in sorted files.
//
// A Tree is the paper's balanced search tree of one write buffer's blocks (metakv, III-A, Fig. 4). It is
// written once, so that a sorted array is the balanced tree: a search halves it, and nothing is spent on
// pointers. A Table is a sequence of block sets (one tree, or sorted files of 256 blocks) with ascending,
// disjoint key ranges: one layer of the shard. The key range of block i goes from its first key to that of
// block i + 1.
//
// Threads: a set is immutable, but SortedFile's cache belongs to the shard's thread (sorted_file.h); cursors
// belong to one.
// Errors: a block that cannot be read or is damaged.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "meta/index/block.h"

namespace swale::meta {

struct Key {
  FileId file;
  uint64_t offset = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

// The first keys of blocks: 16 bytes each, the ids of files once.
class BlockIndex {
 public:
  void add(const Key& first);
  size_t size() const { return offsets_.size(); }
  Key first(size_t block) const { return {files_[file_of_[block]], offsets_[block]}; }
  // The last block that begins at `key` or before; size() if there is none.
  size_t find(const Key& key) const;
  size_t memory_bytes() const {
    return files_.capacity() * sizeof(FileId) + file_of_.capacity() * 4 + offsets_.capacity() * 8;
  }
  void shrink();

 private:
  std::vector<FileId> files_;  // ascending
  std::vector<uint32_t> file_of_;
  std::vector<uint64_t> offsets_;
};

class BlockSet {
 public:
  virtual ~BlockSet() = default;

  const BlockIndex& index() const { return index_; }
  size_t blocks() const { return index_.size(); }
  // Valid until the next call for any set of the same cache.
  virtual Result<BlockView> view(size_t block) = 0;
  // All blocks one after the other, for a merge on any thread: visit(bytes), which may fail.
  virtual Status read_all(std::string* bytes, std::vector<Bytes>* blocks) const = 0;
  virtual std::string name() const = 0;
  virtual uint64_t stored_bytes() const = 0;
  virtual size_t memory_bytes() const = 0;  // index included, cache not

 protected:
  BlockIndex index_;
};

class Tree : public BlockSet {
 public:
  void add(const Key& first, std::string_view block);
  void finish();  // before the first view

  Result<BlockView> view(size_t block) override;
  Status read_all(std::string* bytes, std::vector<Bytes>* blocks) const override;
  std::string name() const override { return "compression buffer"; }
  uint64_t stored_bytes() const override { return bytes_.size(); }
  size_t memory_bytes() const override {
    return bytes_.capacity() + starts_.capacity() * 8 + index_.memory_bytes();
  }

 private:
  Bytes block(size_t i) const { return Bytes(bytes_).substr(starts_[i], starts_[i + 1] - starts_[i]); }

  std::string bytes_;
  std::vector<uint64_t> starts_{0};
};

struct Table {
  std::vector<std::shared_ptr<BlockSet>> sets;
  Sequence sequence_min = 0, sequence_max = 0;
  uint64_t entries = 0;

  uint64_t stored_bytes() const;
  size_t memory_bytes() const;
};

// Rows of a table from a key on. Seeks in ascending order mostly stay in the block that is open.
class TableCursor {
 public:
  explicit TableCursor(const Table& table) : table_(table) {}

  // To the last row that begins at (file, offset) or before; to the first row if there is none.
  Status seek(const FileId& file, uint64_t offset);
  bool at_end() const { return set_ >= table_.sets.size(); }
  // Require !at_end().
  Entry entry() const { return view_.row(row_); }  // its file is a number of this block
  FileId file() const { return view_.file_id(view_.file(row_)); }
  Status next();

 private:
  Status open(size_t set, size_t block);

  const Table& table_;
  size_t set_ = ~size_t{0}, block_ = 0, row_ = 0;
  BlockView view_;
  Key first_, end_;  // of the open block
  bool last_ = false;
};

}  // namespace swale::meta
