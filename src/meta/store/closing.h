// Closing: what a server's files were when its store was closed in order. DIR/closing-SSSSS.json names them
// all, with length and checksum; swale.json has a checksum of each of these documents (server/manifest.h). So
// whoever opens, verifies or shows a closed store knows what must be there: nothing in it can be torn,
// missing, or older than the rest.
//
// A store that was not closed (a crash) has a manifest that says so, and is recovered from its logs.
//
// Of sorted files the checksum covers the trailer, which has the metadata's, which have each block's: blocks
// are checked when they are read, and by `swale verify`. All other files are read whole, as opening them does
// anyway.
// Threads: free functions. Errors: kCorruption names the file, the offset where one is known, and what to do.
// Format: docs/formats/metadata.md. Limits: documents of 64 MiB, some 500,000 files of a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/device.h"
#include "meta/server/manifest.h"

namespace swale::meta {

struct ClosingFile {
  std::string name;
  uint64_t bytes = 0;
  uint32_t crc = 0;
};

struct Closing {
  uint32_t server = 0;
  uint32_t job = 0;         // of the server's logs; none of a later job may be there
  uint64_t generation = 0;  // the manifest's when the store was open
  uint64_t files = 0;       // that have attributes at this server
  uint64_t extents = 0;     // of its shard, in buffers, trees and tables
  std::vector<ClosingFile> parts;
};

std::string closing_name(uint32_t server);
std::string encode_closing(const Closing& closing);
Result<Closing> decode_closing(Bytes text, const std::string& path);

// Measures the server's files, writes the document durably, and gives what the manifest is to say of it.
Result<ClosedServer> write_closing(io::Device& device, const std::string& directory, Closing closing);

// What is wrong with one server's files, of a manifest that says that the store is closed; empty: nothing.
// `found`: the document, if it could be read.
std::vector<Status> check_closing(io::Device& device, const std::string& directory, const Manifest& manifest,
                                  uint32_t server, Closing* found = nullptr);
// Of a manifest that says that the store is open: kCorruption if a closing of this server is newer than that.
Status check_open(io::Device& device, const std::string& directory, const Manifest& manifest,
                  uint32_t server);
// Where no manifest is: kCorruption if there is something that only a store with a manifest can have.
Status check_no_store(io::Device& device, const std::string& directory);

}  // namespace swale::meta
