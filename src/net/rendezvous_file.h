// RendezvousDirectory: the records that the ranks of a starting job leave for each other in a shared
// directory.
//
// One file per node, so that appends from two machines never meet in one file (O_APPEND is atomic on one
// machine, not between NFS clients). Files are opened, used and closed again at each access: closing flushes
// and opening revalidates, which is what NFS promises its readers.
//
// Threads: one thread at a time.
// Format of a record (little-endian; a file is records end to end, and what is not a record is skipped):
//   u32 magic "SWRZ" | u32 body bytes | u64 xxh3 of all that follows | u32 kind | u32 rank | u64 nonce of the
//   writing process | u64 session | u32 round | u32 zero | body
// Limits: a body has at most kBodyBytesMax bytes; more nodes than a few hundred should give a communicator
// instead,
//   since every rank reads every node's file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/transport.h"

namespace swale::net {

// DO NOT CHANGE THESE VALUES: ranks of one job may run different builds.
enum class RendezvousKind : uint32_t {
  kHello = 1,    // a process is there; the body names it
  kWelcome = 2,  // rank 0: the processes whose nonces are in the body belong to `session`
  kGather = 3,   // what a rank gives to allgather number `round`
  kBye = 4,      // a rank reads no more
};

struct RendezvousRecord {
  RendezvousKind kind = RendezvousKind::kHello;
  Rank rank = 0;
  uint64_t nonce = 0;
  uint64_t session = 0;
  uint32_t round = 0;
  std::string body;
};

class RendezvousDirectory {
 public:
  static constexpr size_t kBodyBytesMax = 8 * kMiB;

  // `node` names this process's file.
  RendezvousDirectory(std::string path, std::string node) : path_(std::move(path)), file_("node-" + node) {}
  ~RendezvousDirectory() { close_directory(); }
  RendezvousDirectory(const RendezvousDirectory&) = delete;
  RendezvousDirectory& operator=(const RendezvousDirectory&) = delete;

  // Creates the directory with mode 0700 if it is not there. Refuses one that is not the user's own or that
  // others may enter.
  Status open();

  Status append(const RendezvousRecord& record);

  // Hands over every record that was appended, by anyone, since the last call (or since `rewind`).
  Status scan(const std::function<void(RendezvousRecord)>& visit);
  void rewind() { offsets_.clear(); }

  bool own_file_exists() const;
  void remove_all();  // the files and the directory itself; what cannot be removed stays

  const std::string& path() const { return path_; }

 private:
  Status read_file(const std::string& name, uint64_t* offset,
                   const std::function<void(RendezvousRecord)>& visit);
  Result<std::vector<std::string>> list() const;
  void close_directory();

  const std::string path_;
  const std::string file_;
  int directory_fd_ = -1;
  std::map<std::string, uint64_t> offsets_;  // per file: everything before it has been handed over
};

std::string encode_record(const RendezvousRecord& record);
// Hands over the whole records in `bytes`, skipping damage, and returns how many bytes are done with: what
// follows may be a record still being written.
size_t decode_records(Bytes bytes, const std::function<void(RendezvousRecord)>& visit);

}  // namespace swale::net
