// Manifest: the file swale.json of a metadata store: how many servers its data is divided among, and by which ranges. Both
// stay as they are for the life of the store; a later job with another number of ranks divides the servers among them.
//
// Format: a sealed document (base/sealed_document.h), docs/formats/metadata.md. Threads: free functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "io/device.h"

namespace swale::meta {

inline constexpr char kManifestName[] = "swale.json";
inline constexpr char kLockName[] = "swale.lock";
inline constexpr char kFormatName[] = "swale-meta";

struct Manifest {
  uint32_t servers = 1;
  uint64_t range_bytes = 64 << 20;
};

std::string encode_manifest(const Manifest& manifest);
Result<Manifest> decode_manifest(Bytes text, const std::string& path);

// kNotFound if there is no store.
Result<Manifest> read_manifest(io::Device& device, const std::string& directory);

}  // namespace swale::meta
