#include "base/codec.h"

#include <lz4.h>
#include <zstd.h>

#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

namespace swale {
namespace {

// level 3 saves another 1 % and takes half as long again (docs/design/run-format.md)
constexpr int kZstdLevel = 1;

struct FreeZstd {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

bool decompress_zstd(Bytes from, MutableBytes out) {
  thread_local std::unique_ptr<ZSTD_DCtx, FreeZstd> context(ZSTD_createDCtx());
  if (!context) return false;
  const size_t bytes = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), from.data(), from.size());
  return ZSTD_isError(bytes) == 0 && bytes == out.size();
}

}  // namespace

std::string_view codec_name(Codec codec) {
  return codec == Codec::kLz4 ? "lz4" : codec == Codec::kZstd ? "zstd" : "none";
}

std::optional<Codec> codec_named(std::string_view name) {
  for (const Codec codec : {Codec::kNone, Codec::kLz4, Codec::kZstd}) {
    if (name == codec_name(codec)) return codec;
  }
  return std::nullopt;
}

struct Compressor::Context {
  struct FreeZstd {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  std::unique_ptr<ZSTD_CCtx, FreeZstd> zstd;
  std::unique_ptr<char[]> lz4;
};

Compressor::Compressor(Codec codec, std::unique_ptr<Context> context)
    : codec_(codec), context_(std::move(context)) {}
Compressor::Compressor(Compressor&&) noexcept = default;
Compressor& Compressor::operator=(Compressor&&) noexcept = default;
Compressor::~Compressor() = default;

Result<Compressor> Compressor::create(Codec codec) {
  auto context = std::make_unique<Context>();
  if (codec == Codec::kLz4) {
    context->lz4 = std::make_unique<char[]>(static_cast<size_t>(LZ4_sizeofState()));
  } else if (codec == Codec::kZstd) {
    context->zstd.reset(ZSTD_createCCtx());
    if (!context->zstd) {
      return error(Code::kResourceExhausted, Scope::kOperation, "no memory for a zstd context");
    }
    ZSTD_CCtx_setParameter(context->zstd.get(), ZSTD_c_compressionLevel, kZstdLevel);
    ZSTD_CCtx_setParameter(context->zstd.get(), ZSTD_c_contentSizeFlag, 0);  // our headers state it
    ZSTD_CCtx_setParameter(context->zstd.get(), ZSTD_c_checksumFlag, 0);     // blocks have one
  }
  return Compressor(codec, std::move(context));
}

size_t Compressor::compress(Bytes from, MutableBytes out) {
  assert(from.size() <= static_cast<size_t>(std::numeric_limits<int>::max()));
  if (codec_ == Codec::kLz4) {
    const int bytes = LZ4_compress_fast_extState(context_->lz4.get(), from.data(), out.data(),
                                                 static_cast<int>(from.size()), static_cast<int>(out.size()),
                                                 /*acceleration=*/1);
    return static_cast<size_t>(bytes);
  }
  if (codec_ == Codec::kZstd) {
    const size_t bytes =
        ZSTD_compress2(context_->zstd.get(), out.data(), out.size(), from.data(), from.size());
    return ZSTD_isError(bytes) == 0 ? bytes : 0;
  }
  return 0;
}

bool decompress(Codec codec, Bytes from, MutableBytes out) {
  if (codec == Codec::kZstd) return decompress_zstd(from, out);
  if (codec == Codec::kLz4) {
    constexpr auto kMax = static_cast<size_t>(std::numeric_limits<int>::max());
    if (from.size() > kMax || out.size() > kMax) return false;
    const int bytes = LZ4_decompress_safe(from.data(), out.data(), static_cast<int>(from.size()),
                                          static_cast<int>(out.size()));
    return bytes >= 0 && static_cast<size_t>(bytes) == out.size();
  }
  if (codec != Codec::kNone || from.size() != out.size()) return false;
  std::memcpy(out.data(), from.data(), from.size());
  return true;
}

void transpose_rows(Bytes from, size_t row_bytes, MutableBytes out) {
  assert(out.size() == from.size() && row_bytes >= 1);
  const size_t rows = from.size() / row_bytes;
  char* to = out.data();
  for (size_t column = 0; column < row_bytes; ++column) {
    const char* at = from.data() + column;
    for (size_t row = 0; row < rows; ++row, at += row_bytes) *to++ = *at;
  }
  std::memcpy(to, from.data() + rows * row_bytes, from.size() - rows * row_bytes);
}

void restore_rows(Bytes from, size_t row_bytes, MutableBytes out) {
  assert(out.size() == from.size() && row_bytes >= 1);
  const size_t rows = from.size() / row_bytes;
  const char* at = from.data();
  for (size_t column = 0; column < row_bytes; ++column) {
    char* to = out.data() + column;
    for (size_t row = 0; row < rows; ++row, to += row_bytes) *to = *at++;
  }
  std::memcpy(out.data() + rows * row_bytes, at, from.size() - rows * row_bytes);
}

}  // namespace swale
