// Codec: bytes made smaller and back. LZ4 (lz4.org, block format) and Zstandard (RFC 8878) are named here only.
//
// Threads: free functions of any; a Compressor belongs to one thread at a time.
// Errors: bytes that do not decompress to exactly the promised size are refused; nothing outside of the buffers is
//   ever read or written, whatever the bytes are.
// Memory: a Compressor has up to Compressor::kMemoryBytes; decompressing with zstd keeps a context of about 160 KB for
//   each thread that does.
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

// Whether `from` decompresses to exactly out.size() bytes. If not, `out` has anything.
bool decompress(Codec codec, Bytes from, MutableBytes out);

// Rows of row_bytes as columns: the first bytes of all rows, then the second ones, and so on; what is no whole row
// stays behind them. Bytes at equal places of rows are alike (exponents, high bytes of counts), and codecs find what
// lies side by side. Requires out.size() == from.size(), no overlap, row_bytes >= 1.
void transpose_rows(Bytes from, size_t row_bytes, MutableBytes out);
void restore_rows(Bytes from, size_t row_bytes, MutableBytes out);

}  // namespace swale
