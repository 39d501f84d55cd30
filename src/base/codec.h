// Codec: compression and decompression. Only here are LZ4 (lz4.org, block format) and Zstandard (RFC 8878)
// named.
//
// Threads: any thread may call the free functions; a Compressor belongs to one thread at a time.
// Errors: bytes that do not decompress to exactly the expected size are refused; nothing outside the buffers
// is
//   ever read or written, whatever the bytes are.
// Memory: a Compressor uses up to Compressor::kMemoryBytes; each thread that decompresses with zstd keeps a
// context
//   of about 160 KB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace swale {

// DO NOT CHANGE THESE VALUES: they are on disk.
enum class Codec : uint8_t { kNone = 0, kLz4 = 1, kZstd = 2 };

std::string_view codec_name(Codec codec);  // "none", "lz4", "zstd"
std::optional<Codec> codec_named(std::string_view name);

class Compressor {
 public:
  static constexpr size_t kMemoryBytes = 512 * kKiB;

  // kNone compresses nothing. kResourceExhausted without memory.
  static Result<Compressor> create(Codec codec);
  Compressor(Compressor&&) noexcept;
  Compressor& operator=(Compressor&&) noexcept;
  ~Compressor();

  Codec codec() const { return codec_; }

  // The bytes written to `out`; 0 if they would not fit. `from` has at most 2 GiB - 1.
  size_t compress(Bytes from, MutableBytes out);

 private:
  struct Context;
  Compressor(Codec codec, std::unique_ptr<Context> context);

  Codec codec_;
  std::unique_ptr<Context> context_;
};

// Whether `from` decompresses to exactly out.size() bytes. If not, the content of `out` is undefined.
bool decompress(Codec codec, Bytes from, MutableBytes out);

// Writes rows of row_bytes as columns: byte 0 of every row, then byte 1 of every row, and so on; an
// incomplete last row follows unchanged. Bytes at the same place of each row are similar (exponents, high
// bytes of counts), and codecs compress neighbours well. Requires out.size() == from.size(), no overlap,
// row_bytes >= 1.
void transpose_rows(Bytes from, size_t row_bytes, MutableBytes out);
void restore_rows(Bytes from, size_t row_bytes, MutableBytes out);

}  // namespace swale
