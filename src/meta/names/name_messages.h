// What clients and servers of the tree say to each other: the payloads of requests and answers.
//
// A client is one slot of a node: it has one change under way, and numbers its changes in ascending order. It
// repeats a request until it is answered; a server that has answered a change answers its repetition alike.
// Reads are not numbered.
//
//   by (directory, name), to server_of(key)       by file id, to server_of(file)
//     kLookUp     -> entry, node if it is here      kStat       -> node
//     kOpen       the same, and kHold if it is      kHold, kRelease: the client's node keeps the file alive
//     kCreate     kExclusive: EEXIST if there       kReadUser, kListUsers -> value; names, each sized
//     kMakeDirectory, kSymlink (value: target)      kSetNode    the fields of `set`
//     kUnlink, kRemoveDirectory                     kSetUser, kRemoveUser (name, value)
//     kRename     to (target, target_name)
//   by directory, to each server that kMembers names (to the directory's server):
//     kList       entries after `name` in the server's order, at most `count`; none: from the first one
//   to every server: kForget: the client's node is gone and holds nothing any more
//
// Each request names the life of the server that it is for (0: not known yet). Another life answers with its
// own number, and has done nothing: so a late copy of what an earlier life was asked for is never obeyed.
//
// Errors: an answer has an errno of POSIX. A failed Result instead of an answer (kUnavailable, kBusy,
// kDeadlineExceeded): repeat the request. Decoding answers kCorruption or kInvalidArgument.
// Threads: plain values. These bytes are on no disk and live as long as a job.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "meta/names/name_record.h"

namespace swale::meta {

enum class NameOp : uint8_t {
  kLookUp = 1,
  kStat,
  kMembers,
  kList,
  kReadUser,
  kListUsers,
  kFirstChange = 16,
  kCreate = 16,
  kOpen,
  kMakeDirectory,
  kSymlink,
  kUnlink,
  kRemoveDirectory,
  kRename,
  kSetNode,
  kSetUser,
  kRemoveUser,
  kHold,
  kRelease,
  kForget,
  kLast = kForget,
};
// The node that a client is a slot of: it holds files.
inline uint64_t holder_of(const RequestKey& from) { return from.client >> 16; }
inline bool changes(NameOp op) { return op >= NameOp::kFirstChange; }

// Until when an answer waits. A change that is written survives any killed process; one that is synced, a
// power failure.
enum class AnswerWait : uint8_t { kWritten = 0, kSynced = 1 };

enum NameFlag : uint8_t {
  kExclusive = 1,    // kCreate
  kAndHold = 2,      // kCreate: as kOpen
  kReplaceOnly = 4,  // kSetUser: ENODATA if there is none (XATTR_REPLACE)
  kCreateOnly = 8,   // kSetUser: EEXIST if there is one (XATTR_CREATE)
  kEntryOnly = 16,   // kLookUp: what the node remembers is enough
};
enum NodeField : uint8_t { kMode = 1, kUid = 2, kGid = 4, kAccessed = 8, kModified = 16 };

struct NameRequest {
  NameOp op = NameOp::kLookUp;
  uint32_t life = 0;
  RequestKey from = {};
  AnswerWait wait = AnswerWait::kWritten;
  uint8_t flags = 0;  // NameFlag; of kRename: RenameFlag
  FileId directory = {};
  std::string name = {};
  FileId target = {};
  std::string target_name = {};
  FileId file = {};
  uint8_t set = 0;  // NodeField: which of these count
  uint32_t mode = 0, uid = 0, gid = 0;
  int64_t accessed_ns = 0, modified_ns = 0;
  int64_t now_ns = 0;  // by the clock of the client
  std::string value = {};
  uint32_t count = 0;
};
std::string encode(const NameRequest& request);

struct ListedEntry {
  std::string name;
  DirEntry entry;
  friend bool operator==(const ListedEntry&, const ListedEntry&) = default;
};

struct NameAnswer {
  int error = 0;  // errno
  DirEntry entry = {};
  bool made = false;  // kCreate: by this request
  bool held = false;
  std::optional<TreeNode> node = {};
  std::string value = {};
  std::vector<ListedEntry> list = {};
  bool more = false;  // of the list
  std::vector<uint64_t> members = {};
};
std::string encode(const NameAnswer& answer);
Result<NameAnswer> decode_name_answer(Bytes bytes);

// ---- between servers (names_core.h says what they are for)

enum class PeerOp : uint8_t {
  kEnrol = 64,  // directory, server -> error
  kLeave,       // directory -> PeerAnswer::outcome
  kRemove,      // directory, transaction, from -> outcome
  kDrop,        // file
  kLock,        // key, transaction -> entry, grant
  kDecide,      // key, transaction, commit, entry, grant
  kInquire,     // transaction: answered when it has ended
  kParent,      // directory -> entry.file
  kSetParent,   // directory, other: the parent, grant
  kUncache,     // key: to each node, which forgets the entry
};

struct PeerRequest {
  PeerOp op = PeerOp::kEnrol;
  uint32_t life = 0;
  FileId file = {};
  FileId other = {};
  EntryKey key = {};
  Transaction transaction = {};
  RequestKey from = {};  // who has asked for it, for messages
  uint32_t server = 0;
  bool commit = false;  // kDecide: `entry` is what the key has from now on
  std::optional<DirEntry> entry = {};
  uint64_t grant = 0;
};
std::string encode(const PeerRequest& request);

enum class Outcome : uint8_t { kDone = 0, kNotEmpty = 1, kBusy = 2 };

struct PeerAnswer {
  int error = 0;  // errno
  Outcome outcome = Outcome::kDone;
  std::optional<DirEntry> entry = {};
  uint64_t grant = 0;
};
std::string encode(const PeerAnswer& answer);
Result<PeerAnswer> decode_peer_answer(Bytes bytes);

// The answer of a server to a request for another life of it; none: the response is an answer.
std::string encode_life(uint32_t life);
std::optional<uint32_t> other_life(Bytes response);

// The first byte tells the two kinds of requests apart.
inline bool from_peer(Bytes payload) {
  return !payload.empty() && static_cast<uint8_t>(payload[0]) >= static_cast<uint8_t>(PeerOp::kEnrol);
}
Result<NameRequest> decode_name_request(Bytes payload);
Result<PeerRequest> decode_peer_request(Bytes payload);

}  // namespace swale::meta
