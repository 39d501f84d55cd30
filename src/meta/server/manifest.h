// Manifest: the file swale.json of a metadata store: how many servers its data is divided among, and by which
// ranges. Both stay as they are for the life of the store; a later job with another number of ranks divides
// the servers among them.
//
// It also says whether the store was closed in order. An opening raises the generation in all directories,
// says in all of them that the store is open, and only then changes anything else; a close says "closed" when
// all else is durable, and names what each server wrote about its files (store/closing.h).
//
// Each directory with servers of the store has a copy: the newest one counts. It names all servers by their
// ids, and says where each one was last (store/roster.h).
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
  uint32_t crc = 0;  // of its closing
};

// Where a server's files were when a job last found them elsewhere than before.
struct ServerPlace {
  uint64_t id = 0;  // drawn when the store was made
  std::string host = {};
  std::string path = {};  // of the directory
  uint32_t rank = 0;
  friend bool operator==(const ServerPlace&, const ServerPlace&) = default;
};

struct Manifest {
  uint32_t servers = 1;
  uint64_t range_bytes = 64 << 20;
  uint64_t store = 0;                       // drawn when it was made
  uint64_t generation = 0;                  // how often an opening began
  bool closed = false;                      // in the generation `opened`
  std::vector<ServerPlace> places = {};     // by server
  std::vector<ClosedServer> closings = {};  // of a closed store: by server
  // The last generation that all directories have reached. A copy of before it is older than the store's
  // files; if it is less than `generation`, an opening was interrupted, and the files are as that generation
  // left them.
  uint64_t opened = generation;
};

std::string encode_manifest(const Manifest& manifest);
Result<Manifest> decode_manifest(Bytes text, const std::string& path);

// kNotFound if there is no store.
Result<Manifest> read_manifest(io::Device& device, const std::string& directory);

}  // namespace swale::meta
