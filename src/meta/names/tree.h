// What the tree of a job's file system consists of (docs/design/file-system.md).
//
// An entry (directory, name) -> (file, type) stands at the server that a hash of both chooses. A node has the
// attributes of a file, directory or link; it stands at the server that has drawn its id (FileId::high), for
// ever. A new node's id is drawn by the server of its entry, so both begin on one server.
//
// Threads: plain values. Limits: kEntryNameBytesMax (NAME_MAX), kTargetBytesMax (PATH_MAX with its zero);
// user attributes of a file: kUserBytesMax, names and values together.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "meta/index/shard.h"

namespace swale::meta {

inline constexpr size_t kEntryNameBytesMax = 255;
inline constexpr size_t kTargetBytesMax = 4095;
inline constexpr size_t kUserBytesMax = 64 * kKiB;
inline constexpr size_t kUserNameBytesMax = 255;

// The top of the tree. No server draws this id: they count from 2.
inline constexpr FileId kRootDirectory{0, 1};

// DO NOT CHANGE THESE VALUES: they are on the wire and on disk.
enum class NodeType : uint8_t { kFile = 1, kDirectory = 2, kLink = 3 };

struct DirEntry {
  FileId file = {};
  NodeType type = NodeType::kFile;
  friend bool operator==(const DirEntry&, const DirEntry&) = default;
};

// Where an entry is, whether there is one or not. Ordered by a hash of the name: the order of a listing.
struct EntryKey {
  FileId directory = {};
  uint64_t hash = 0;
  std::string name = {};

  EntryKey() = default;
  EntryKey(const FileId& in, Bytes entry_name);
  friend auto operator<=>(const EntryKey&, const EntryKey&) = default;
};
// The server of an entry. The key without a directory (moves_key) is at server 0.
uint32_t server_of(const EntryKey& key, uint32_t servers);
inline uint32_t server_of(const FileId& node) { return static_cast<uint32_t>(node.high); }

// Whoever moves a directory to another one holds the lock of this key: so no two moves make a cycle.
inline const EntryKey& moves_key() {
  static const EntryKey key;
  return key;
}

struct TreeNode {
  NodeType type = NodeType::kFile;
  bool unlinked = false;  // no entry leads to it; it lives as long as a client holds it
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t accessed_ns = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  FileId parent = {};       // of a directory
  uint64_t move = 0;        // of a directory: the grant under which `parent` was set
  std::string target = {};  // of a link
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

// An operation that needs several servers, begun by `server` in its job `job`. No two have the same.
struct Transaction {
  uint32_t server = 0;
  uint32_t job = 0;
  uint64_t number = 0;
  friend auto operator<=>(const Transaction&, const Transaction&) = default;
};

// A lock of a key for a transaction of any server. No server gives a number of a grant twice: a message about
// an earlier grant does not pass for one about this.
struct HeldLock {
  Transaction holder = {};
  uint64_t grant = 0;
  friend bool operator==(const HeldLock&, const HeldLock&) = default;
};

// DO NOT CHANGE THESE VALUES: they are on disk.
enum class IntentKind : uint8_t { kUnlink = 1, kRemoveDirectory = 2, kRename = 3 };
enum class IntentPhase : uint8_t {
  kRemoving = 1,   // a directory is to be removed, if it is empty; nothing else has changed
  kFinishing = 2,  // the operation has happened; other servers are still to be told
};
// DO NOT CHANGE THESE VALUES: they are on the wire and on disk.
enum RenameFlag : uint8_t { kNoReplace = 1, kExchange = 2 };

// What the server of the first entry has begun and a restart finishes.
struct Intent {
  IntentKind kind = IntentKind::kUnlink;
  IntentPhase phase = IntentPhase::kRemoving;
  uint8_t flags = 0;  // RenameFlag
  RequestKey from = {};
  EntryKey source = {};
  EntryKey target = {};                   // of a rename
  std::optional<DirEntry> moved = {};     // what `source` had
  std::optional<DirEntry> replaced = {};  // what `target` had
  uint64_t move = 0;                      // the grant of moves_key(); 0: no directory gets another parent
  uint64_t grant = 0;                     // of the target's lock, if that is at another server
};

// The last change that a client has asked a server for, and its outcome.
struct LastAnswer {
  uint64_t number = 0;
  DirEntry entry = {};
  friend bool operator==(const LastAnswer&, const LastAnswer&) = default;
};

}  // namespace swale::meta
