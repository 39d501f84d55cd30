// Reading: a server's files as a job reads them that changes nothing: READ_ONLY opens, and tools. What
// recovery writes stays in memory (io::OverlayDevice). Another job may have the store open and write
// meanwhile: what it had acknowledged before is there, what comes later may be, group by group.
//
// A writer replaces manifests and removes files under the reader. A file that is open stays readable; one
// that is gone, or seems torn, while others have changed is no damage: then all is read again.
//
// Threads: free functions; ReadParts as its parts say. Errors: as Shard.
// Limits: kAttemptsMax attempts.
#pragma once

#include <memory>
#include <string>

#include "io/device.h"
#include "io/overlay_device.h"
#include "meta/attributes/attribute_table.h"
#include "meta/index/shard.h"

namespace swale::meta {

struct ReadParts {
  std::unique_ptr<io::OverlayDevice> device;  // outlives the others
  std::unique_ptr<AttributeTable> attributes;
  std::unique_ptr<Shard> shard;
  RecoveryReport report;
};

// `options` of the shard: directory, shard and table are set here.
Result<ReadParts> read_server(io::Device& below, const std::string& directory, uint32_t server,
                              const ShardOptions& options, size_t files_max = 16 << 20);

// The names and sizes of the server's files: whether somebody has changed them.
Result<std::string> files_as_they_are(io::Device& device, const std::string& directory, uint32_t server);

}  // namespace swale::meta
