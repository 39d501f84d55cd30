// Roster: which servers a store consists of, and where each one's files are.
//
// A store and each of its servers have an id that is drawn once. DIR/server-SSSSS.json says, in the directory
// of each server, whose it is; the manifest, of which each directory with a server has a copy, says who all
// servers are and where they were last. So a job finds each server where its files are, whatever order its
// nodes come in, and names one that it does not find.
//
// Threads: free functions. Errors: kCorruption names the server, its id, where it should be and where it was.
// Format: docs/formats/metadata.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/device.h"
#include "meta/server/manifest.h"

namespace swale::meta {

struct ServerFile {
  uint64_t store = 0;  // its id
  uint64_t id = 0;
  uint32_t server = 0;
  friend bool operator==(const ServerFile&, const ServerFile&) = default;
};

std::string server_file_name(uint32_t server);
std::string encode_server_file(const ServerFile& file);
Result<ServerFile> decode_server_file(Bytes text, const std::string& path);

// Whether the directory has the server: its file with the right ids. kCorruption: the file is another store's
// or another server's, or is damaged, or the server's logs are missing in a store that was not closed (else
// closing.h says it). `names`: what is in the directory.
Result<bool> has_server(io::Device& device, const std::string& directory,
                        const std::vector<std::string>& names, const Manifest& manifest, uint32_t server);
// The servers of the store that the directory has, ascending.
Result<std::vector<uint32_t>> servers_in(io::Device& device, const std::string& directory,
                                         const std::vector<std::string>& names, const Manifest& manifest);
// What a new store that was interrupted has left: whose servers they were. Requires check_no_store.
Status remove_server_files(io::Device& device, const std::string& directory);

// `looked_in`: where. `here`: what was found there.
Status absent_server(const Manifest& manifest, uint32_t server, const std::string& looked_in,
                     const std::vector<uint32_t>& here);
// "server 3 (id ..., last at rank 1 of host node17, in /local/store)"
std::string name_of_server(const Manifest& manifest, uint32_t server);

}  // namespace swale::meta
