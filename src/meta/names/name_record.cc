#include "meta/names/name_record.h"

#include <algorithm>

#include "meta/index/log.h"

namespace swale::meta {
namespace {

constexpr uint64_t kDrawnMax = uint64_t{1} << 62;  // a server would need a century

enum NodeFlag : uint8_t { kUnlinked = 1 };
enum IntentEntry : uint8_t { kMoved = 1, kReplaced = 2 };

void append_intent(std::string* out, const Intent& intent) {
  append_u8(out, static_cast<uint8_t>(intent.kind));
  append_u8(out, static_cast<uint8_t>(intent.phase));
  append_u8(out, intent.flags);
  append_u64(out, intent.from.client);
  append_u64(out, intent.from.number);
  append_key(out, intent.source);
  append_key(out, intent.target);
  append_u8(out, static_cast<uint8_t>((intent.moved ? kMoved : 0) | (intent.replaced ? kReplaced : 0)));
  if (intent.moved) append_entry(out, *intent.moved);
  if (intent.replaced) append_entry(out, *intent.replaced);
  append_u64(out, intent.move);
  append_u64(out, intent.grant);
}

Intent read_intent(Decoder* in) {
  Intent intent;
  intent.kind = static_cast<IntentKind>(in->u8());
  intent.phase = static_cast<IntentPhase>(in->u8());
  intent.flags = in->u8();
  intent.from.client = in->u64();
  intent.from.number = in->u64();
  intent.source = read_key(in);
  intent.target = read_key(in);
  const uint8_t entries = in->u8();
  if ((entries & kMoved) != 0) intent.moved = read_entry(in);
  if ((entries & kReplaced) != 0) intent.replaced = read_entry(in);
  intent.move = in->u64();
  intent.grant = in->u64();
  return intent;
}

bool valid(const std::optional<DirEntry>& entry) {
  return !entry || (valid(entry->type) && !entry->file.none());
}

bool valid(const Intent& intent) {
  const bool rename = intent.kind == IntentKind::kRename;
  return intent.kind >= IntentKind::kUnlink && intent.kind <= IntentKind::kRename &&
         (intent.phase == IntentPhase::kRemoving || intent.phase == IntentPhase::kFinishing) &&
         intent.flags <= (kNoReplace | kExchange) && valid_name(intent.source.name) &&
         (rename ? valid_name(intent.target.name) : intent.target == EntryKey()) && intent.moved &&
         valid(intent.moved) && valid(intent.replaced);
}

// What is wrong with a step that was read whole; null: nothing.
const char* wrong(const NameStep& step) {
  switch (step.kind) {
    case StepKind::kEntry:
      if (!valid(step.entry.type) || step.entry.file.none()) return "an entry that leads nowhere";
      [[fallthrough]];
    case StepKind::kNoEntry:
      return valid_name(step.key.name) && !step.key.directory.none() ? nullptr : "a name that none can have";
    case StepKind::kNode:
      if (!valid(step.node.type) || step.node.target.size() > kTargetBytesMax) return "no node";
      break;
    case StepKind::kUser:
    case StepKind::kNoUser:
      if (step.name.empty() || step.name.size() + step.value.size() > kUserBytesMax) return "no attribute";
      break;
    case StepKind::kLock:
    case StepKind::kNoLock:
      return step.key == moves_key() || (valid_name(step.key.name) && !step.key.directory.none())
                 ? nullptr
                 : "a lock of a name that none can have";
    case StepKind::kIntent:
      return valid(step.intent) ? nullptr : "no intent";
    case StepKind::kNoIntent:
      return nullptr;
    case StepKind::kCounters:
      return std::max(step.drawn, step.grants) <= kDrawnMax ? nullptr : "more than a server can have counted";
    case StepKind::kAnswer:
      return step.from.client != 0 ? nullptr : "an answer to nobody";
    default:
      break;
  }
  return step.id.none() ? "no id of a file" : nullptr;
}

void read_body(Decoder* in, NameStep* step) {
  switch (step->kind) {
    case StepKind::kEntry:
      step->key = read_key(in);
      step->entry = read_entry(in);
      break;
    case StepKind::kNoEntry:
    case StepKind::kNoLock:
      step->key = read_key(in);
      break;
    case StepKind::kNode:
      step->id = read_file_id(in);
      step->node = read_node(in);
      break;
    case StepKind::kUser:
      step->id = read_file_id(in);
      step->name = in->sized();
      step->value = in->sized();
      break;
    case StepKind::kNoUser:
      step->id = read_file_id(in);
      step->name = in->sized();
      break;
    case StepKind::kHolder:
    case StepKind::kNoHolder:
    case StepKind::kMember:
    case StepKind::kNoMember:
      step->id = read_file_id(in);
      step->other = in->u64();
      break;
    case StepKind::kNoNode:
    case StepKind::kEnrolled:
    case StepKind::kNotEnrolled:
      step->id = read_file_id(in);
      break;
    case StepKind::kLock:
      step->key = read_key(in);
      step->transaction = read_transaction(in);
      step->grant = in->u64();
      break;
    case StepKind::kIntent:
      step->transaction = read_transaction(in);
      step->intent = read_intent(in);
      break;
    case StepKind::kNoIntent:
      step->transaction = read_transaction(in);
      break;
    case StepKind::kAnswer:
      step->from.client = in->u64();
      step->from.number = in->u64();
      step->entry = read_entry(in);
      break;
    case StepKind::kCounters:
      step->drawn = in->u64();
      step->grants = in->u64();
      break;
  }
}

}  // namespace

bool valid(NodeType type) { return type >= NodeType::kFile && type <= NodeType::kLink; }

bool valid_name(Bytes name) {
  return !name.empty() && name.size() <= kEntryNameBytesMax && name != "." && name != ".." &&
         name.find_first_of(Bytes("/\0", 2)) == Bytes::npos;
}

void append_key(std::string* out, const EntryKey& key) {
  append_file_id(key.directory, out);
  append_sized(out, key.name);
}

EntryKey read_key(Decoder* in) {
  const FileId directory = read_file_id(in);
  const Bytes name = in->sized();
  return directory.none() && name.empty() ? moves_key() : EntryKey(directory, name);
}

void append_entry(std::string* out, const DirEntry& entry) {
  append_file_id(entry.file, out);
  append_u8(out, static_cast<uint8_t>(entry.type));
}

DirEntry read_entry(Decoder* in) {
  const FileId file = read_file_id(in);
  return {file, static_cast<NodeType>(in->u8())};
}

void append_transaction(std::string* out, const Transaction& id) {
  append_u32(out, id.server);
  append_u32(out, id.job);
  append_u64(out, id.number);
}

Transaction read_transaction(Decoder* in) {
  Transaction id;
  id.server = in->u32();
  id.job = in->u32();
  id.number = in->u64();
  return id;
}

void append_node(std::string* out, const TreeNode& node) {
  append_u8(out, static_cast<uint8_t>(node.type));
  append_u8(out, node.unlinked ? kUnlinked : 0);
  append_u32(out, node.mode);
  append_u32(out, node.uid);
  append_u32(out, node.gid);
  append_i64(out, node.accessed_ns);
  append_i64(out, node.modified_ns);
  append_i64(out, node.changed_ns);
  append_file_id(node.parent, out);
  append_u64(out, node.move);
  append_sized(out, node.target);
}

TreeNode read_node(Decoder* in) {
  TreeNode node;
  node.type = static_cast<NodeType>(in->u8());
  node.unlinked = (in->u8() & kUnlinked) != 0;
  node.mode = in->u32();
  node.uid = in->u32();
  node.gid = in->u32();
  node.accessed_ns = in->i64();
  node.modified_ns = in->i64();
  node.changed_ns = in->i64();
  node.parent = read_file_id(in);
  node.move = in->u64();
  node.target = in->sized();
  return node;
}

NameRecord& NameRecord::begin(StepKind kind) {
  append_u8(&bytes_, static_cast<uint8_t>(kind));
  return *this;
}

NameRecord& NameRecord::entry(const EntryKey& key, const DirEntry& entry) {
  begin(StepKind::kEntry);
  append_key(&bytes_, key);
  append_entry(&bytes_, entry);
  return *this;
}

NameRecord& NameRecord::no_entry(const EntryKey& key) {
  begin(StepKind::kNoEntry);
  append_key(&bytes_, key);
  return *this;
}

NameRecord& NameRecord::node(const FileId& id, const TreeNode& node) {
  begin(StepKind::kNode);
  append_file_id(id, &bytes_);
  append_node(&bytes_, node);
  return *this;
}

NameRecord& NameRecord::no_node(const FileId& id) {
  begin(StepKind::kNoNode);
  append_file_id(id, &bytes_);
  return *this;
}

NameRecord& NameRecord::user(const FileId& id, Bytes name, Bytes value) {
  begin(StepKind::kUser);
  append_file_id(id, &bytes_);
  append_sized(&bytes_, name);
  append_sized(&bytes_, value);
  return *this;
}

NameRecord& NameRecord::no_user(const FileId& id, Bytes name) {
  begin(StepKind::kNoUser);
  append_file_id(id, &bytes_);
  append_sized(&bytes_, name);
  return *this;
}

NameRecord& NameRecord::pair(StepKind kind, const FileId& id, uint64_t other) {
  begin(kind);
  append_file_id(id, &bytes_);
  append_u64(&bytes_, other);
  return *this;
}

NameRecord& NameRecord::enrolled(const FileId& directory) {
  begin(StepKind::kEnrolled);
  append_file_id(directory, &bytes_);
  return *this;
}

NameRecord& NameRecord::not_enrolled(const FileId& directory) {
  begin(StepKind::kNotEnrolled);
  append_file_id(directory, &bytes_);
  return *this;
}

NameRecord& NameRecord::lock(const EntryKey& key, const HeldLock& lock) {
  begin(StepKind::kLock);
  append_key(&bytes_, key);
  append_transaction(&bytes_, lock.holder);
  append_u64(&bytes_, lock.grant);
  return *this;
}

NameRecord& NameRecord::no_lock(const EntryKey& key) {
  begin(StepKind::kNoLock);
  append_key(&bytes_, key);
  return *this;
}

NameRecord& NameRecord::intent(const Transaction& id, const Intent& intent) {
  begin(StepKind::kIntent);
  append_transaction(&bytes_, id);
  append_intent(&bytes_, intent);
  return *this;
}

NameRecord& NameRecord::no_intent(const Transaction& id) {
  begin(StepKind::kNoIntent);
  append_transaction(&bytes_, id);
  return *this;
}

NameRecord& NameRecord::answer(const RequestKey& from, const DirEntry& entry) {
  begin(StepKind::kAnswer);
  append_u64(&bytes_, from.client);
  append_u64(&bytes_, from.number);
  append_entry(&bytes_, entry);
  return *this;
}

NameRecord& NameRecord::counters(uint64_t drawn, uint64_t grants) {
  begin(StepKind::kCounters);
  append_u64(&bytes_, drawn);
  append_u64(&bytes_, grants);
  return *this;
}

Status visit_record(Bytes record, const std::function<Status(NameStep&& step)>& visit) {
  Decoder in(record);
  while (in.remaining() > 0) {
    const size_t at = in.offset();
    const uint8_t kind = in.u8();
    if (kind < static_cast<uint8_t>(StepKind::kEntry) || kind > static_cast<uint8_t>(StepKind::kCounters))
      return corruption("a record of names: byte {}: a step of unknown kind {}", at, kind);
    NameStep step;
    step.kind = static_cast<StepKind>(kind);
    read_body(&in, &step);
    SWALE_RETURN_IF_ERROR(in.status("a record of names"));
    if (const char* const why = wrong(step); why != nullptr)
      return corruption("a record of names: byte {}: step of kind {}: {}", at, kind, why);
    SWALE_RETURN_IF_ERROR(visit(std::move(step)));
  }
  return {};
}

}  // namespace swale::meta
