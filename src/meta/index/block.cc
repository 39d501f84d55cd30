#include "meta/index/block.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/uint128.h"
#include "meta/index/codec.h"

namespace swale::meta {
namespace {

constexpr size_t kRowsFirstGuess = 512;
constexpr size_t kCodedRowsMax = 4096;  // these are decoded whole
constexpr size_t kRawBytesMax = 8 * kBlockRowsMax * kBlockColumns + 64;
constexpr unsigned kBlocksPerChoice = 16;
constexpr double kCodedMustSave = 0.5;  // it must be half as large to give up addressable rows

bool known(uint8_t codec) {
  return codec == static_cast<uint8_t>(BlockCodec::kFrame) ||
         codec == static_cast<uint8_t>(BlockCodec::kDeltaZstd);
}

}  // namespace

Result<std::unique_ptr<BlockEncoder>> BlockEncoder::create(BlockCodec codec) {
  SWALE_ASSIGN_OR_RETURN(Compressor zstd, Compressor::create(Codec::kZstd));
  return std::unique_ptr<BlockEncoder>(new BlockEncoder(codec, std::move(zstd)));
}

size_t BlockEncoder::encode(std::span<const Entry> rows, const FileTable& files, size_t bytes_max,
                            std::string* out) {
  fit(choose(rows, files, bytes_max), rows, files, bytes_max, &attempt_);
  out->append(attempt_.bytes);
  return attempt_.rows;
}

// Measured on one block of sixteen.
BlockCodec BlockEncoder::choose(std::span<const Entry> rows, const FileTable& files, size_t bytes_max) {
  if (codec_ != BlockCodec::kAuto) return codec_;
  if (until_next_choice_ > 0) {
    --until_next_choice_;
    return chosen_;
  }
  until_next_choice_ = kBlocksPerChoice - 1;
  const auto bytes_per_row = [&](BlockCodec codec) {
    fit(codec, rows, files, bytes_max, &attempt_);
    return static_cast<double>(attempt_.bytes.size()) / static_cast<double>(attempt_.rows);
  };
  const double frame = bytes_per_row(BlockCodec::kFrame);
  const double zstd = frame < 0.1 ? frame : bytes_per_row(BlockCodec::kDeltaZstd);
  chosen_ = zstd < kCodedMustSave * frame ? BlockCodec::kDeltaZstd : BlockCodec::kFrame;
  return chosen_;
}

// The guess is what fitted the last time; two or three attempts where the data changes.
void BlockEncoder::fit(BlockCodec codec, std::span<const Entry> rows, const FileTable& files,
                       size_t bytes_max, Attempt* out) {
  const size_t most = codec == BlockCodec::kFrame ? kBlockRowsMax : kCodedRowsMax;
  const size_t available = std::min(rows.size(), most);
  size_t& guess = rows_guess_[static_cast<size_t>(codec)];
  size_t count = std::min(available, guess == 0 ? kRowsFirstGuess : guess);
  out->codec = codec;
  out->rows = 0;
  for (int attempt = 0; attempt < 12; ++attempt) {
    load(rows.first(count), files);
    packed_.clear();
    build(codec, count, &packed_);
    const size_t bytes = packed_.size();
    if (bytes <= bytes_max) {
      out->rows = count;
      out->bytes.swap(packed_);
      if (count == available || bytes * 10 >= bytes_max * 9 || attempt >= 3) break;
      count = std::min(available, std::max(count + 1, count * bytes_max / bytes * 97 / 100));
    } else {
      if (out->rows != 0) break;  // the smaller one fits
      count =
          attempt >= 8 ? 1 : std::max<size_t>(1, std::min(count - 1, count * bytes_max / bytes * 97 / 100));
    }
  }
  guess = out->rows == available && available < guess ? guess : out->rows;
}

void BlockEncoder::load(std::span<const Entry> rows, const FileTable& files) {
  for (auto& column : columns_) column.resize(rows.size());
  ids_.clear();
  uint32_t last = FileTable::kNone;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Entry& row = rows[i];
    if (row.file != last) {
      last = row.file;
      const FileId& id = files.id(last);
      const auto at =
          ids_.empty() || ids_.back() != id ? std::find(ids_.begin(), ids_.end(), id) : ids_.end() - 1;
      columns_[0][i] = static_cast<uint64_t>(at - ids_.begin());
      if (at == ids_.end()) ids_.push_back(id);
    } else {
      columns_[0][i] = columns_[0][i - 1];
    }
    columns_[1][i] = row.offset;
    columns_[2][i] = row.length;
    columns_[3][i] = row.log;
    columns_[4][i] = row.address;
    columns_[5][i] = row.sequence;
  }
}

void BlockEncoder::build(BlockCodec codec, size_t rows, std::string* out) {
  out->resize(kBlockHeaderBytes);
  for (const FileId& id : ids_) append_u64(out, id.low), append_u64(out, id.high);
  if (codec == BlockCodec::kFrame) {
    append_frame(rows, out);
  } else {
    append_coded(rows, out);
  }
  char* const header = out->data();
  put_u32(header + 4, static_cast<uint32_t>(out->size()));
  put_u16(header + 8, static_cast<uint16_t>(rows));
  put_u16(header + 10, static_cast<uint16_t>(ids_.size()));
  header[12] = static_cast<char>(codec);
  header[13] = static_cast<char>(kBlockVersion);
  std::memset(header + 14, 0, 6);
  put_u32(header, crc32c(Bytes(*out).substr(4)));
}

void BlockEncoder::append_frame(size_t rows, std::string* out) {
  std::array<ColumnPlan, kBlockColumns> plans;
  const size_t first = ids_.size() > 1 ? 0 : 1;
  for (size_t c = first; c < kBlockColumns; ++c) {
    const bool sloped = c == 1 || c == 4 || c == 5;
    plans[c] = plan_column(std::span(columns_[c]).first(rows), sloped);
    append_column_header(plans[c], out);
  }
  for (size_t c = first; c < kBlockColumns; ++c)
    append_column_data(plans[c], std::span(columns_[c]).first(rows), out);
}

void BlockEncoder::append_coded(size_t rows, std::string* out) {
  raw_.clear();
  for (size_t c = ids_.size() > 1 ? 0 : 1; c < kBlockColumns; ++c)
    append_second_differences(std::span(columns_[c]).first(rows), &raw_);
  append_varint(out, raw_.size());
  const size_t begin = out->size();
  out->resize(begin + raw_.size() + raw_.size() / 128 + 64);
  const size_t bytes = zstd_.compress(raw_, MutableBytes(out->data() + begin, out->size() - begin));
  out->resize(begin + bytes);
}

size_t BlockView::length_of(Bytes bytes) {
  if (bytes.size() < kBlockHeaderBytes) return 0;
  const size_t length = get_u32(bytes.data() + 4);
  return length < kBlockHeaderBytes || length > bytes.size() ? 0 : length;
}

namespace {

bool decode_columns(Bytes payload, size_t rows, size_t first, std::vector<uint64_t>* values) {
  Decoder header(payload);
  const uint64_t raw_bytes = header.varint64();
  if (!header.ok() || raw_bytes > kRawBytesMax) return false;
  std::string raw(raw_bytes, '\0');
  if (!decompress(Codec::kZstd, header.rest(), raw)) return false;
  values->resize(rows * kBlockColumns);
  Decoder decoder(raw);
  for (size_t c = first; c < kBlockColumns; ++c) {
    if (!read_second_differences(&decoder, std::span(*values).subspan(c * rows, rows))) return false;
  }
  return decoder.finished();
}

}  // namespace

Result<BlockView> BlockView::parse(Bytes block, std::string_view where, bool trusted) {
  if (length_of(block) != block.size())
    return corruption("{}: a block of {} bytes says otherwise", where, block.size());
  if (!trusted && get_u32(block.data()) != crc32c(block.substr(4)))
    return corruption("{}: expected checksum {:08x}, found {:08x}", where, get_u32(block.data()),
                      crc32c(block.substr(4)));
  BlockView view;
  view.rows_ = get_u16(block.data() + 8);
  view.files_ = get_u16(block.data() + 10);
  const auto codec = static_cast<uint8_t>(block[12]);
  const auto version = static_cast<uint8_t>(block[13]);
  if (version != kBlockVersion || !known(codec))
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: block of version {} with codec {}; read it with a newer swale", where, version, codec);
  view.codec_ = static_cast<BlockCodec>(codec);
  const size_t ids_end = kBlockHeaderBytes + 16 * view.files_;
  if (view.rows_ == 0 || view.rows_ > kBlockRowsMax || view.files_ == 0 || view.files_ > view.rows_ ||
      ids_end > block.size())
    return corruption("{}: block of {} rows and {} files in {} bytes", where, view.rows_, view.files_,
                      block.size());
  view.ids_ = block.data() + kBlockHeaderBytes;
  const Bytes payload = block.substr(ids_end);
  const size_t first = view.files_ > 1 ? 0 : 1;
  if (view.codec_ == BlockCodec::kFrame) {
    Decoder decoder(payload);
    for (size_t c = first; c < kBlockColumns; ++c) {
      if (!read_column_header(&decoder, &view.columns_[c]))
        return corruption("{}: header of column {} is malformed", where, c);
    }
    for (size_t c = first; c < kBlockColumns; ++c) {
      const Bytes data = decoder.bytes((view.rows_ * view.columns_[c].width + 7) / 8);
      view.columns_[c].data = data.data();
    }
    if (!decoder.finished()) return corruption("{}: columns do not fill the block", where);
  } else {
    view.decoded_ = std::make_shared<std::vector<uint64_t>>();
    if (!decode_columns(payload, view.rows_, first, view.decoded_.get()))
      return corruption("{}: columns do not decode", where);
    view.ids_ = nullptr;
    auto& values = *view.decoded_;
    const size_t ids_at = values.size();
    values.resize(ids_at + 2 * view.files_ + 1);
    std::memcpy(values.data() + ids_at, block.data() + kBlockHeaderBytes, 16 * view.files_);
    view.ids_ = reinterpret_cast<const char*>(values.data() + ids_at);
    for (size_t c = first; c < kBlockColumns; ++c)
      view.columns_[c] = {
          reinterpret_cast<const char*>(values.data() + c * view.rows_), 0, 0, 1, ~uint64_t{0}, 64};
  }
  if (!trusted) SWALE_RETURN_IF_ERROR(view.check_rows(where));
  return view;
}

// Once, when a block comes from outside: later readers trust offsets, lengths and file numbers.
Status BlockView::check_rows(std::string_view where) const {
  for (size_t i = 0; i < rows_; ++i) {
    const uint64_t from = offset(i), length = columns_[2][i];
    if (from >= kOffsetEnd || length == 0 || length > kOffsetEnd - from ||
        (files_ > 1 && columns_[0][i] >= files_) || columns_[3][i] > ~LogId{0})
      return corruption("{}: row {}: offset {}, length {} are not an extent", where, i, from, length);
    if (const Sequence sequence = columns_[5][i]; sequence > kSequenceMax)
      return corruption("{}: row {}: sequence {} is out of range", where, i, sequence);
  }
  return {};
}

// Among rows [first, end) of one file.
size_t BlockView::find_in_rows(size_t first, size_t end, uint64_t offset) const {
  const ColumnView& column = columns_[1];
  if (column.slope != 0 && static_cast<int64_t>(column.slope) > 0 && column.width < kColumnWidthMax) {
    // offset(row) lies in [base + slope * row, base + slope * row + mask * gcd].
    const uint64_t above = offset - column.base;
    if (static_cast<int64_t>(above) < 0) {
      end = std::min<size_t>(end, first + 1);
    } else {
      const uint64_t greatest = above / column.slope;
      end = std::min<uint64_t>(end, greatest + 1 > first ? greatest + 1 : first + 1);
      const auto wide = static_cast<Uint128>(column.mask) * column.gcd;
      if (column.width == 0) {
        first = std::max(first, end - 1);
      } else if (wide < above) {
        const uint64_t least = (above - static_cast<uint64_t>(wide)) / column.slope;
        first = std::clamp<uint64_t>(least, first, end - 1);
      }
    }
  }
  // Invariant: offset(first) <= offset, or first is where it began.
  while (end - first > 1) {
    const size_t middle = first + (end - first) / 2;
    if (column[middle] <= offset) {
      first = middle;
    } else {
      end = middle;
    }
  }
  return first;
}

size_t BlockView::find(const FileId& file, uint64_t offset) const {
  size_t first = 0, end = rows_;
  if (files_ > 1) {
    // Rows of the last file that is not after `file`.
    size_t number = files_;
    while (number > 0 && file_id(number - 1) > file) --number;
    if (number == 0) return rows_;
    --number;
    const auto begin_of = [this](size_t wanted) {
      size_t low = 0, high = rows_;
      while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (this->file(middle) < wanted) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low;
    };
    first = begin_of(number);
    end = begin_of(number + 1);
    if (file_id(number) != file) return end == 0 ? rows_ : end - 1;
    if (end == first) return rows_;
  } else if (file_id(0) != file) {
    return file_id(0) < file ? rows_ - 1 : rows_;
  }
  const size_t found = find_in_rows(first, end, offset);
  if (this->offset(found) > offset) return found == 0 ? rows_ : found - 1;
  return found;
}

}  // namespace swale::meta
