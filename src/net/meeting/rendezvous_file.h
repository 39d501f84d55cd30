// RendezvousDirectory: the records that the ranks of a starting job leave for each other in a shared
// directory.
//
// One file per node, so that appends from two machines never meet in one file (O_APPEND is atomic on one
// machine, not between NFS clients). Files are opened, used and closed again at each access: closing flushes
// and opening revalidates, which is what NFS promises its readers.
//
// In a large job (rendezvous.h) two more files, which rank 0 alone writes, say what the ranks have given:
// `answers`, of records, and `addresses-SESSION`, an AddressBook.
//
// Threads: one thread at a time.
// Format of a record (little-endian; a file is records end to end, and what is not a record is skipped):
//   u32 magic "SWRZ" | u32 body bytes | u64 xxh3 of all that follows | u32 kind | u32 rank | u64 nonce of the
//   writing process | u64 session | u32 round | u32 zero | body
// The body of an answer is u8 1, then what came of all that was given; or u8 2, then a Status. What came
// of the rows of addresses in a large job is: varint bytes of a row | varint 0, or 1 + the lowest rank
// without an address. Their file has the rows from rank 0 on, each filled up with zeros to the length of
// the longest; the answer is written after it.
// Limits: a body has at most kBodyBytesMax bytes. Memory: a window of kWindowBytes of a file, or its longest
// record.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/fabric/transport.h"

namespace swale::net {

// DO NOT CHANGE THESE VALUES: ranks of one job may run different builds.
enum class RendezvousKind : uint32_t {
  kHello = 1,    // a process is there; the body names it
  kWelcome = 2,  // rank 0: the processes whose nonces are in the body belong to `session`
  kGather = 3,   // what a rank gives to allgather number `round`
  kBye = 4,      // a rank reads no more
  kAnswer = 5,   // rank 0: what came of all that was given to `round`
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
  static constexpr size_t kWindowBytes = 256 * kKiB;

  // `node` names this process's file.
  RendezvousDirectory(std::string path, std::string node) : path_(std::move(path)), file_("node-" + node) {}
  ~RendezvousDirectory() { close_directory(); }
  RendezvousDirectory(const RendezvousDirectory&) = delete;
  RendezvousDirectory& operator=(const RendezvousDirectory&) = delete;

  // Creates the directory with mode 0700 if it is not there. Refuses one that is not the user's own or that
  // others may enter.
  Status open();

  Status append(const RendezvousRecord& record);
  Status append_answer(const RendezvousRecord& record);

  using Visit = std::function<void(RendezvousRecord)>;
  // Hands over every record that was appended to a node's file, by anyone, since the last call (or since
  // `rewind`).
  Status scan(const Visit& visit);
  // The same of the answers.
  Status scan_answers(const Visit& visit) { return read_file(kAnswers, &offsets_[kAnswers], visit); }
  // All records of nodes' files once more; `scan` goes on where it was.
  Status scan_again(const Visit& visit);
  void rewind() { offsets_.clear(); }

  std::string addresses_path(uint64_t session) const;

  // Whether the first record that this process has appended since `open` is still in its node's file. Another
  // process may have removed the file, and a third one of this node may have made it again.
  bool own_records_stand() const;
  void remove_all();  // the files and the directory itself; what cannot be removed stays

  const std::string& path() const { return path_; }

 private:
  static constexpr char kAnswers[] = "answers";

  // Where in the file the record begins.
  Result<uint64_t> append_to(const std::string& file, Bytes record);
  Status read_file(const std::string& name, uint64_t* offset, const Visit& visit);
  Result<std::vector<std::string>> list(bool of_nodes_only) const;
  void close_directory();

  const std::string path_;
  const std::string file_;
  int directory_fd_ = -1;
  std::string first_header_;  // of the first own record; empty: there is none
  uint64_t first_at_ = 0;
  std::map<std::string, uint64_t> offsets_;  // per file: everything before it has been handed over
};

std::string encode_record(const RendezvousRecord& record);
// Hands over the whole records in `bytes`, skipping damage, and returns how many bytes are done with: what
// follows may be a record still being written.
size_t decode_records(Bytes bytes, const std::function<void(RendezvousRecord)>& visit);

}  // namespace swale::net
