#include "meta/index/sorted_file.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::meta {

BlockCache::BlockCache(uint64_t bytes)
    : frames_(std::max<uint64_t>(kSortedFileBlocks, bytes / kFrameBytes)) {}

uint32_t BlockCache::take(SortedFile* file, uint32_t block) {
  while (frames_[hand_].used) {
    frames_[hand_].used = false;
    hand_ = hand_ + 1 == frames_.size() ? 0 : hand_ + 1;
  }
  Frame& frame = frames_[hand_];
  if (!frame.bytes) {
    frame.bytes = std::make_unique<char[]>(kFrameBytes);
    ++filled_;
  }
  if (frame.owner != nullptr) frame.owner->frame_of_[frame.block] = kNone;
  frame.owner = file;
  frame.block = block;
  frame.used = true;
  const auto taken = static_cast<uint32_t>(hand_);
  hand_ = hand_ + 1 == frames_.size() ? 0 : hand_ + 1;
  return taken;
}

void BlockCache::give_back(uint32_t frame) {
  frames_[frame].owner = nullptr;
  frames_[frame].used = false;
}

void BlockCache::clear() {
  for (Frame& frame : frames_) {
    if (frame.owner != nullptr) frame.owner->frame_of_[frame.block] = kNone;
    frame = Frame();
  }
  filled_ = 0;
  decoded_ = {};
}

void BlockCache::keep_decoded(const SortedFile* file, size_t block, const BlockView& view) {
  assert(view.owns_rows());
  decoded_ = {file, block, view};
}

void BlockCache::forget_decoded(const SortedFile* file) {
  if (decoded_.file == file) decoded_ = {};
}

namespace {

struct Trailer {
  uint32_t blocks = 0;
  uint32_t metadata_crc = 0;
  SortedFile::About about;
};

Result<Trailer> decode_trailer(Bytes bytes, const std::string& path) {
  if (bytes.size() != kSortedTrailerBytes || get_u32(bytes.data()) != kSortedMagic)
    return corruption("{}: no trailer of a sorted file at its end", path);
  if (get_u32(bytes.data() + 4) != crc32c(bytes.substr(8)))
    return corruption("{}: the trailer fails its checksum", path);
  Decoder decoder(bytes.substr(8));
  const uint16_t version = decoder.u16();
  if (version != kSortedVersion)
    return error(Code::kUnsupported, Scope::kFile, "{}: sorted file of version {}; this build reads {}", path,
                 version, kSortedVersion);
  Trailer trailer;
  decoder.u16();
  trailer.blocks = decoder.u32();
  trailer.about.entries = decoder.u64();
  trailer.about.sequence_min = decoder.u64();
  trailer.about.sequence_max = decoder.u64();
  trailer.metadata_crc = decoder.u32();
  decoder.u32();
  trailer.about.owner = decoder.u64();
  if (trailer.blocks == 0 || trailer.blocks > kSortedFileBlocks)
    return corruption("{}: the trailer names {} blocks", path, trailer.blocks);
  return trailer;
}

}  // namespace

Result<std::shared_ptr<SortedFile>> SortedFile::open(io::Device& device, const std::string& path,
                                                     uint64_t owner, BlockCache* cache,
                                                     ShardCounters* counters) {
  std::shared_ptr<SortedFile> opened(new SortedFile());
  SWALE_ASSIGN_OR_RETURN(opened->file_, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, opened->file_->size());
  if (size < kSortedTrailerBytes) return corruption("{}: {} bytes are no sorted file", path, size);
  char trailer_bytes[kSortedTrailerBytes];
  SWALE_RETURN_IF_ERROR(io::read_exactly(*opened->file_, size - kSortedTrailerBytes, trailer_bytes));
  SWALE_ASSIGN_OR_RETURN(const Trailer trailer,
                         decode_trailer(Bytes(trailer_bytes, sizeof(trailer_bytes)), path));
  if (trailer.about.owner != owner)
    return corruption("{}: expected the file with the number {:016x}, found {:016x}", path, owner,
                      trailer.about.owner);
  const uint64_t pages = uint64_t{trailer.blocks} * kBlockBytes;
  if (size != pages + trailer.blocks * kSortedMetadataBytes + kSortedTrailerBytes)
    return corruption("{}: {} blocks in {} bytes", path, trailer.blocks, size);
  std::string metadata(trailer.blocks * kSortedMetadataBytes, '\0');
  SWALE_RETURN_IF_ERROR(io::read_exactly(*opened->file_, pages, metadata));
  if (crc32c(metadata) != trailer.metadata_crc)
    return corruption("{}: the metadata fail their checksum", path);
  Key before;
  for (size_t i = 0; i < trailer.blocks; ++i) {
    const char* const at = metadata.data() + i * kSortedMetadataBytes;
    const Key first{{get_u64(at + 8), get_u64(at)}, get_u64(at + 16)};
    if (i > 0 && first <= before) return corruption("{}: block {} begins before block {}", path, i, i - 1);
    before = first;
    opened->index_.add(first);
    opened->crcs_.push_back(get_u32(at + 24));
  }
  opened->index_.shrink();
  opened->frame_of_.assign(trailer.blocks, BlockCache::kNone);
  opened->about_ = trailer.about;
  opened->cache_ = cache;
  opened->counters_ = counters;
  return opened;
}

SortedFile::~SortedFile() {
  if (cache_ == nullptr) return;
  cache_->forget_decoded(this);
  for (const uint32_t frame : frame_of_) {
    if (frame != BlockCache::kNone) cache_->give_back(frame);
  }
}

size_t SortedFile::memory_bytes() const {
  return sizeof(*this) + index_.memory_bytes() + 4 * (crcs_.capacity() + frame_of_.capacity()) +
         2 * path().size();
}

Status SortedFile::check_block(size_t block, Bytes page, Bytes* bytes) const {
  const size_t length = BlockView::length_of(page);
  if (length == 0)
    return corruption("{}: block {} at offset {}: no block", path(), block, block * kBlockBytes);
  *bytes = page.substr(0, length);
  const uint32_t found = crc32c(bytes->substr(4));
  if (found != crcs_[block] || get_u32(page.data()) != found)
    return corruption("{}: block {} at offset {}: expected checksum {:08x}, found {:08x}", path(), block,
                      block * kBlockBytes, crcs_[block], found);
  return {};
}

Status SortedFile::fetch(size_t first, size_t count) {
  scratch_.resize(count * kBlockBytes);
  SWALE_RETURN_IF_ERROR(io::read_exactly(*file_, first * kBlockBytes, scratch_));
  ++counters_->reads;
  counters_->read_bytes += scratch_.size();
  counters_->blocks_read += count;
  for (size_t i = 0; i < count; ++i) {
    const Bytes page = Bytes(scratch_).substr(i * kBlockBytes, kBlockBytes);
    const size_t block = first + i;
    if (cached(block)) continue;
    Bytes bytes;
    SWALE_RETURN_IF_ERROR(check_block(block, page, &bytes));
    // Rows are checked once here; later views trust the frame.
    std::string padded(bytes);
    padded.append(kColumnSlackBytes, '\0');
    SWALE_RETURN_IF_ERROR(
        BlockView::parse(Bytes(padded).substr(0, bytes.size()), fmt::format("{}: block {}", path(), block))
            .status());
    const uint32_t frame = cache_->take(this, static_cast<uint32_t>(block));
    std::memcpy(cache_->data(frame), page.data(), kBlockBytes);
    frame_of_[block] = frame;
  }
  scratch_.clear();
  scratch_.shrink_to_fit();
  return {};
}

Result<BlockView> SortedFile::view(size_t block) {
  ++counters_->blocks_wanted;
  if (cached(block)) {
    ++counters_->cache_hits;
  } else {
    SWALE_RETURN_IF_ERROR(fetch(block, 1));
  }
  const uint32_t frame = frame_of_[block];
  cache_->touch(frame);
  if (const BlockView* decoded = cache_->decoded(this, block); decoded != nullptr) return *decoded;
  const Bytes page(cache_->data(frame), kBlockBytes);
  auto view = BlockView::parse(page.substr(0, get_u32(page.data() + 4)), path(), /*trusted=*/true);
  if (view.ok() && view->owns_rows()) cache_->keep_decoded(this, block, *view);
  return view;
}

Status SortedFile::read_all(std::string* bytes, std::vector<Bytes>* blocks) const {
  bytes->resize(this->blocks() * kBlockBytes + kColumnSlackBytes);
  SWALE_RETURN_IF_ERROR(
      io::read_exactly(*file_, 0, MutableBytes(bytes->data(), this->blocks() * kBlockBytes)));
  for (size_t i = 0; i < this->blocks(); ++i) {
    Bytes block;
    SWALE_RETURN_IF_ERROR(check_block(i, Bytes(*bytes).substr(i * kBlockBytes, kBlockBytes), &block));
    blocks->push_back(block);
  }
  return {};
}

void SortedFileWriter::add(const Key& first, Bytes block, size_t rows) {
  append_u64(&metadata_, first.file.low);
  append_u64(&metadata_, first.file.high);
  append_u64(&metadata_, first.offset);
  append_u32(&metadata_, get_u32(block.data()));
  append_u32(&metadata_, static_cast<uint32_t>(block.size()));
  pages_.append(block);
  pages_.resize(round_up(pages_.size(), kBlockBytes));
  entries_ += rows;
}

Result<uint64_t> SortedFileWriter::write(io::Device& device, const std::string& path, uint64_t owner,
                                         Sequence sequence_min, Sequence sequence_max) {
  std::string trailer;
  append_u16(&trailer, kSortedVersion);
  append_u16(&trailer, 0);
  append_u32(&trailer, static_cast<uint32_t>(blocks()));
  append_u64(&trailer, entries_);
  append_u64(&trailer, sequence_min);
  append_u64(&trailer, sequence_max);
  append_u32(&trailer, crc32c(metadata_));
  append_u32(&trailer, 0);
  append_u64(&trailer, owner);
  append_u64(&trailer, 0);
  std::string head;
  append_u32(&head, kSortedMagic);
  append_u32(&head, crc32c(trailer));
  pages_ += metadata_;
  pages_ += head;
  pages_ += trailer;
  SWALE_ASSIGN_OR_RETURN(auto file, device.open(path, io::OpenMode::kCreate));
  SWALE_RETURN_IF_ERROR(file->pwrite(0, pages_));
  SWALE_RETURN_IF_ERROR(file->sync());
  const uint64_t bytes = pages_.size();
  *this = SortedFileWriter();
  return bytes;
}

}  // namespace swale::meta
