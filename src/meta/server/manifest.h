// Manifest: the file swale.json of a metadata store: how many servers its data is divided among, and by which ranges. Both
// stay as they are for the life of the store; a later job with another number of ranks divides the servers among them.
//
// It also says whether the store was closed in order. Each opening raises the generation and says "open", before anything else
// is changed; a close says "closed" when all else is durable, and names what each server wrote about its files
// (store/closing.h).
//
// Format: a sealed document (base/sealed_document.h), docs/formats/metadata.md. Threads: free functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/device.h"

namespace swale::meta {

inline constexpr char kManifestName[] = "swale.json";
inline constexpr char kLockName[] = "swale.lock";
inline constexpr char kFormatName[] = "swale-meta";

// What a closed store's manifest says of a server.
struct ClosedServer {
  uint32_t crc = 0;       // of its closing
  std::string host = {};  // that had its files
};

struct Manifest {
  uint32_t servers = 1;
  uint64_t range_bytes = 64 << 20;
  uint64_t generation = 0;  // how often the store was opened; 0: an older Swale wrote it, which did not say
  bool closed = false;
  std::vector<ClosedServer> closings = {};  // of a closed store: by server
};

std::string encode_manifest(const Manifest& manifest);
Result<Manifest> decode_manifest(Bytes text, const std::string& path);

// kNotFound if there is no store.
Result<Manifest> read_manifest(io::Device& device, const std::string& directory);

}  // namespace swale::meta
