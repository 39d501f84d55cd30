// Blocks of the metadata store. A block that parses has rows within limits, and finds each of them; nothing
// is read beyond it. The input is a block as it is; then the same with a right checksum; then rows made of it
// pass through every codec.
#include <string>

#include "base/coding.h"
#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "meta/index/block.h"

namespace swale::meta::meta_block_fuzz {
namespace {

using fuzz::require;

void check(Bytes bytes) {
  std::string padded(bytes);
  padded.append(kColumnSlackBytes, '\x5a');
  const auto view = BlockView::parse(Bytes(padded).substr(0, bytes.size()), "fuzz");
  if (!view.ok()) return;
  for (size_t i = 0; i < view->rows(); ++i) {
    const Entry row = view->row(i);
    require(row.length > 0 && row.end() <= kOffsetEnd && row.file < view->files());
    require(view->find(view->file_id(row.file), row.offset) <= view->rows());
  }
}

void pass_through(Bytes input) {
  std::vector<Entry> rows;
  FileTable files;
  files.index_of({0, 1});
  files.index_of({1, 0});
  uint64_t offset = 0;
  for (Decoder decoder(input); decoder.remaining() >= 12 && rows.size() < 500;) {
    Entry row;
    offset += decoder.u16();
    row.offset = offset;
    row.length = 1 + decoder.u8() % 64;
    row.log = decoder.u8();
    row.address = decoder.u64() >> (decoder.remaining() % 60);
    row.sequence = 7;
    row.file = rows.size() >= 20 ? 1 : 0;
    offset = row.end();
    rows.push_back(row);
  }
  if (rows.empty()) return;
  for (const BlockCodec codec : {BlockCodec::kFrame, BlockCodec::kDeltaZstd}) {
    auto encoder = BlockEncoder::create(codec);
    require(encoder.ok());
    std::string block;
    const size_t count = (*encoder)->encode(rows, files, kBlockBytes, &block);
    require(count > 0);
    const size_t size = block.size();
    block.append(kColumnSlackBytes, '\0');
    const auto view = BlockView::parse(Bytes(block).substr(0, size), "fuzz");
    require(view.ok() && view->rows() == count);
    for (size_t i = 0; i < count; ++i) {
      Entry row = view->row(i);
      require(view->file_id(row.file) == files.id(rows[i].file));
      row.file = rows[i].file;
      require(row == rows[i]);
    }
  }
}

void run(Bytes input) {
  check(input);
  if (input.size() >= kBlockHeaderBytes) {
    std::string sealed(input);
    put_u32(sealed.data() + 4, static_cast<uint32_t>(sealed.size()));
    put_u32(sealed.data(), crc32c(Bytes(sealed).substr(4)));
    check(sealed);
  }
  pass_through(input);
}

}  // namespace

SWALE_FUZZ_TARGET(meta_block_fuzz) {
  run(swale::fuzz::as_bytes(data, size));
  return 0;
}

}  // namespace swale::meta::meta_block_fuzz
