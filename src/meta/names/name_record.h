// NameRecord: one change of a NameTable as bytes: all of it becomes true at once. Records stand in the log of
// the server's shard, in its snapshots and in the file of its table (meta/index/table_records.h).
//
// Each step says what a row is from now on, so replaying a record twice is as good as once.
//
//   record := step*      step := u8 kind | body       key := file id of the directory | sized name
//    1 entry         key, entry (file id, u8 type)           2 no entry      key
//    3 node          file id, node (below)
//    4 no node       file id: its user attributes, holders and members go with it
//    5 user          file id, sized name, sized value        6 no user       file id, sized name
//    7 holder        file id, u64 client                     8 no holder     file id, u64 client
//    9 member        file id of a directory, u64 server that may have entries of it; at the directory's node
//   10 no member     the same
//   11 enrolled      file id of a directory that this server may have entries of
//   12 not enrolled  the same
//   13 lock          key, transaction (u32 server, u32 job, u64 number), u64 grant
//   14 no lock       key
//   15 intent        transaction, u8 kind, u8 phase, u8 flags, u64 client, u64 number, key of the source, key
//                    of the target, u8 (1: moved, 2: replaced), those entries, u64 move, u64 grant
//   16 no intent     transaction
//   17 answer        u64 client, u64 number, entry           the last change of the client
//   18 counters      u64 ids drawn, u64 grants               the greater ones count
//   node := u8 type | u8 flags (1: unlinked) | u32 mode, uid, gid | i64 accessed, modified, changed
//           | file id of the parent | u64 move | sized target
//
// A file id is u64 low, u64 high, as in the shard's records; all zero: none, which only moves_key has. sized:
// varint length, then the bytes. Integers are little-endian.
//
// Threads: plain values. Errors: decoding answers kCorruption for any other bytes.
#pragma once

#include <functional>
#include <string>

#include "base/coding.h"
#include "base/status.h"
#include "meta/names/tree.h"

namespace swale::meta {

// DO NOT CHANGE THESE VALUES: they are on disk.
enum class StepKind : uint8_t {
  kEntry = 1,
  kNoEntry = 2,
  kNode = 3,
  kNoNode = 4,
  kUser = 5,
  kNoUser = 6,
  kHolder = 7,
  kNoHolder = 8,
  kMember = 9,
  kNoMember = 10,
  kEnrolled = 11,
  kNotEnrolled = 12,
  kLock = 13,
  kNoLock = 14,
  kIntent = 15,
  kNoIntent = 16,
  kAnswer = 17,
  kCounters = 18,
};

class NameRecord {
 public:
  NameRecord& entry(const EntryKey& key, const DirEntry& entry);
  NameRecord& no_entry(const EntryKey& key);
  NameRecord& node(const FileId& id, const TreeNode& node);
  NameRecord& no_node(const FileId& id);
  NameRecord& user(const FileId& id, Bytes name, Bytes value);
  NameRecord& no_user(const FileId& id, Bytes name);
  // kHolder, kNoHolder, kMember, kNoMember.
  NameRecord& pair(StepKind kind, const FileId& id, uint64_t other);
  NameRecord& enrolled(const FileId& directory);
  NameRecord& not_enrolled(const FileId& directory);
  NameRecord& lock(const EntryKey& key, const HeldLock& lock);
  NameRecord& no_lock(const EntryKey& key);
  NameRecord& intent(const Transaction& id, const Intent& intent);
  NameRecord& no_intent(const Transaction& id);
  NameRecord& answer(const RequestKey& from, const DirEntry& entry);
  NameRecord& counters(uint64_t drawn, uint64_t grants);

  Bytes bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }

 private:
  NameRecord& begin(StepKind kind);
  std::string bytes_;
};

// A step as it is read; what its kind does not have is as it was made.
struct NameStep {
  StepKind kind = StepKind::kEntry;
  EntryKey key = {};
  FileId id = {};
  DirEntry entry = {};
  TreeNode node = {};
  std::string name = {};  // kUser
  std::string value = {};
  uint64_t grant = 0;  // kLock
  uint64_t other = 0;  // kHolder, kMember
  Transaction transaction = {};
  Intent intent = {};
  RequestKey from = {};
  uint64_t drawn = 0, grants = 0;
};
// The steps of a record, in order; kCorruption names the byte. Failures of `visit` stop it.
Status visit_record(Bytes record, const std::function<Status(NameStep&& step)>& visit);

// Parts that messages have, too.

void append_key(std::string* out, const EntryKey& key);
EntryKey read_key(Decoder* in);
void append_entry(std::string* out, const DirEntry& entry);
DirEntry read_entry(Decoder* in);  // its type may be none
void append_transaction(std::string* out, const Transaction& id);
Transaction read_transaction(Decoder* in);
void append_node(std::string* out, const TreeNode& node);
TreeNode read_node(Decoder* in);  // its type may be none
bool valid(NodeType type);
// Whether a directory may have an entry of this name: 1 to 255 bytes, no slash, no zero, not "." or "..".
bool valid_name(Bytes name);

}  // namespace swale::meta
