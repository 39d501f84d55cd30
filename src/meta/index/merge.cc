#include "meta/index/merge.h"

#include <algorithm>
#include <optional>

#include "meta/index/relocation.h"

namespace swale::meta {
namespace {

constexpr size_t kChunkRows = 64 * 1024;
constexpr size_t kCopiedBytesMin = kBlockBytes * 3 / 4;  // smaller blocks are packed together again

// One table as a stream of rows.
class Input {
 public:
  Input(const Table& table, FileTable* files, std::span<const RemovedRange> removed, MergeCounters* counters)
      : table_(table), files_(files), removed_(removed), counters_(*counters) {}

  Status load() {  // the next set, if the last one is used up
    while (set_ < table_.sets.size() && block_ == blocks_.size()) {
      if (loaded_) ++set_;
      loaded_ = false;
      if (set_ == table_.sets.size()) break;
      blocks_.clear();
      SWALE_RETURN_IF_ERROR(table_.sets[set_]->read_all(&bytes_, &blocks_));
      block_ = 0;
      loaded_ = true;
    }
    return {};
  }
  bool has_block() const { return set_ < table_.sets.size() && block_ < blocks_.size(); }
  Key next_key() const { return table_.sets[set_]->index().first(block_); }
  // Where the key range of the next block ends; none: unknown.
  std::optional<Key> next_end() const {
    if (block_ + 1 < blocks_.size()) return table_.sets[set_]->index().first(block_ + 1);
    if (set_ + 1 < table_.sets.size()) return table_.sets[set_ + 1]->index().first(0);
    return std::nullopt;
  }
  Bytes next_block() const { return blocks_[block_]; }
  Status skip() {
    ++block_;
    return load();
  }
  Status decode() {
    SWALE_ASSIGN_OR_RETURN(
        const BlockView view,
        BlockView::parse(blocks_[block_], fmt::format("{}: block {}", table_.sets[set_]->name(), block_)));
    std::vector<uint32_t> numbers(view.files());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const FileId file = view.file_id(i);
      numbers[i] = contains(removed_, file) ? FileTable::kNone : files_->index_of(file);
    }
    if (begin > 0) {
      rows.erase(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(begin));
      begin = 0;
    }
    rows.reserve(rows.size() + view.rows());
    for (size_t i = 0; i < view.rows(); ++i) {
      Entry row = view.row(i);
      row.file = numbers[row.file];
      row.file == FileTable::kNone ? static_cast<void>(++counters_.dropped) : rows.push_back(row);
    }
    return skip();
  }
  size_t buffered() const { return rows.size() - begin; }

  // Moves the rows before `end` (all if none) to `out`; one that crosses it is cut.
  void take(const std::optional<Entry>& end, std::vector<Entry>* out) {
    if (!end) {
      out->assign(rows.begin() + static_cast<ptrdiff_t>(begin), rows.end());
      rows.clear();
      begin = 0;
      return;
    }
    const auto first = rows.begin() + static_cast<ptrdiff_t>(begin);
    const auto stop = std::lower_bound(
        first, rows.end(), *end, [this](const Entry& a, const Entry& b) { return precedes(*files_, a, b); });
    out->assign(first, stop);
    begin = static_cast<size_t>(stop - rows.begin());
    if (out->empty() || out->back().file != end->file || out->back().end() <= end->offset) return;
    Entry rest = out->back();
    rest.drop_front(end->offset - rest.offset);
    out->back().length -= rest.length;
    rows[--begin] = rest;  // its place is free: the row before it was taken
  }

  std::vector<Entry> rows;
  size_t begin = 0;

 private:
  const Table& table_;
  FileTable* const files_;
  const std::span<const RemovedRange> removed_;
  MergeCounters& counters_;
  std::string bytes_;
  std::vector<Bytes> blocks_;
  size_t set_ = 0, block_ = 0;
  bool loaded_ = false;
};

class Merger {
 public:
  Merger(const MergeRequest& request, const BlockSink& sink, MergeCounters* counters)
      : request_(request), sink_(sink), counters_(counters) {
    for (const auto& table : request.tables) {
      inputs_.emplace_back(*table, &files_, request.removed, counters);
      sequence_max_ = std::max(sequence_max_, table->sequence_max);
    }
  }

  Status run() {
    SWALE_ASSIGN_OR_RETURN(cutter_, BlockCutter::create(request_.codec, files_, sink_));
    for (Input& input : inputs_) SWALE_RETURN_IF_ERROR(input.load());
    for (;;) {
      bool copied = true;
      while (copied) SWALE_RETURN_IF_ERROR(copy_block(&copied));
      const bool more =
          std::any_of(inputs_.begin(), inputs_.end(), [](const Input& i) { return i.has_block(); });
      SWALE_RETURN_IF_ERROR(fill());
      SWALE_RETURN_IF_ERROR(merge_chunk());
      if (!more) return cutter_->add({}, true);
    }
  }

 private:
  Input* least() {
    Input* found = nullptr;
    for (Input& input : inputs_) {
      if (input.has_block() && (found == nullptr || input.next_key() < found->next_key())) found = &input;
    }
    return found;
  }

  // Copies the next block if no other table has a byte in its key range.
  Status copy_block(bool* copied) {
    *copied = false;
    Input* const next = least();
    if (!request_.rules.empty()) return {};
    if (next == nullptr || next->next_block().size() < kCopiedBytesMin || !next->next_end()) return {};
    for (const Input& input : inputs_) {
      if (input.buffered() > 0) return {};
      if (&input != next && input.has_block() && input.next_key() < *next->next_end()) return {};
    }
    if (!request_.removed.empty()) {
      SWALE_ASSIGN_OR_RETURN(const BlockView view, BlockView::parse(next->next_block(), "a block", true));
      for (size_t i = 0; i < view.files(); ++i) {
        if (contains(request_.removed, view.file_id(i))) return {};
      }
    }
    SWALE_RETURN_IF_ERROR(cutter_->add({}, true));
    const size_t rows = get_u16(next->next_block().data() + 8);
    SWALE_RETURN_IF_ERROR(sink_(next->next_key(), next->next_block(), rows));
    ++counters_->blocks_copied;
    counters_->entries += rows;
    *copied = true;
    return next->skip();
  }

  // Decodes at least one block, then more up to a chunk, in the order of keys.
  Status fill() {
    size_t rows = 0;
    for (const Input& input : inputs_) rows += input.buffered();
    do {
      Input* const next = least();
      if (next == nullptr) return {};
      const size_t before = next->buffered();
      SWALE_RETURN_IF_ERROR(next->decode());
      rows += next->buffered() - before;
      ++counters_->blocks_decoded;
    } while (rows < kChunkRows);
    return {};
  }

  // Everything before the first key that is not decoded yet.
  Status merge_chunk() {
    std::optional<Entry> end;
    if (Input* const next = least(); next != nullptr) {
      end.emplace();
      end->file = files_.index_of(next->next_key().file);
      end->offset = next->next_key().offset;
    }
    std::vector<std::vector<Entry>> parts(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].take(end, &parts[i]);
    while (parts.size() > 1) {
      std::vector<std::vector<Entry>> merged((parts.size() + 1) / 2);
      for (size_t i = 0; i < parts.size(); i += 2) {
        if (i + 1 == parts.size() || parts[i + 1].empty()) {
          merged[i / 2].swap(parts[i]);
        } else if (parts[i].empty()) {
          merged[i / 2].swap(parts[i + 1]);
        } else {
          overlay(parts[i], parts[i + 1], files_, &merged[i / 2]);
        }
      }
      parts.swap(merged);
    }
    std::vector<Entry>& rows = parts[0];
    if (!request_.rules.empty()) relocate_rows(request_.rules, &rows);
    if (request_.drop_holes) std::erase_if(rows, [](const Entry& row) { return row.log == kHoleLog; });
    raise_sequences(rows, request_.barriers, sequence_max_);
    coalesce(&rows);
    counters_->entries += rows.size();
    return cutter_->add(rows, false);
  }

  const MergeRequest& request_;
  const BlockSink& sink_;
  MergeCounters* const counters_;
  FileTable files_;
  std::vector<Input> inputs_;
  Sequence sequence_max_ = 0;
  std::unique_ptr<BlockCutter> cutter_;
};

}  // namespace

void raise_sequences(std::span<Entry> entries, std::span<const Sequence> barriers, Sequence sequence_max) {
  if (barriers.empty()) {
    for (Entry& entry : entries) entry.sequence = sequence_max;
    return;
  }
  for (Entry& entry : entries) {
    const auto next = std::upper_bound(barriers.begin(), barriers.end(), entry.sequence);
    entry.sequence = next == barriers.end() ? std::max(entry.sequence, sequence_max)
                                            : std::max(entry.sequence, std::min(*next - 1, sequence_max));
  }
}

Result<std::unique_ptr<BlockCutter>> BlockCutter::create(BlockCodec codec, const FileTable& files,
                                                         BlockSink sink) {
  SWALE_ASSIGN_OR_RETURN(auto encoder, BlockEncoder::create(codec));
  return std::unique_ptr<BlockCutter>(new BlockCutter(std::move(encoder), files, std::move(sink)));
}

Status BlockCutter::add(std::span<const Entry> entries, bool all) {
  std::span<const Entry> rest = entries;
  if (!kept_.empty()) {
    kept_.insert(kept_.end(), entries.begin(), entries.end());
    rest = kept_;
  }
  while (rest.size() > kBlockRowsMax || (all && !rest.empty())) {
    block_.clear();
    const size_t rows = encoder_->encode(rest, files_, kBlockBytes, &block_);
    SWALE_RETURN_IF_ERROR(sink_({files_.id(rest[0].file), rest[0].offset}, block_, rows));
    rest = rest.subspan(rows);
  }
  std::vector<Entry> kept(rest.begin(), rest.end());
  kept_.swap(kept);
  return {};
}

Status merge_tables(const MergeRequest& request, const BlockSink& sink, MergeCounters* counters) {
  return Merger(request, sink, counters).run();
}

}  // namespace swale::meta
