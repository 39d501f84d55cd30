#include "fs/losses/left_details.h"

#include "base/coding.h"
#include "fs/share/share_coding.h"

namespace swale::fs {
namespace {

void append_transaction(std::string* out, const meta::Transaction& transaction) {
  append_u32(out, transaction.server);
  append_u32(out, transaction.job);
  append_u64(out, transaction.number);
}
meta::Transaction take_transaction(Decoder* in) {
  meta::Transaction transaction;
  transaction.server = in->u32(), transaction.job = in->u32(), transaction.number = in->u64();
  return transaction;
}

void append_key(std::string* out, const meta::EntryKey& key) {
  append_id(out, key.directory);
  append_sized(out, key.name);
}
meta::EntryKey take_key(Decoder* in) {
  const meta::FileId directory = take_id(in);
  return {directory, in->sized()};
}

}  // namespace

std::string encode(const LeftDetails& details) {
  std::string out;
  append_varint(&out, details.files.size());
  for (const auto& [id, file] : details.files) {
    append_id(&out, id);
    append_u32(&out, file.mode), append_u32(&out, file.uid), append_u32(&out, file.gid);
    for (const int64_t time : {file.accessed_ns, file.modified_ns, file.changed_ns})
      append_u64(&out, static_cast<uint64_t>(time));
    append_varint(&out, file.users.size());
    for (const auto& [name, value] : file.users) append_sized(&out, name), append_sized(&out, value);
  }
  append_varint(&out, details.renames.size());
  for (const LeftDetails::Rename& each : details.renames) {
    append_transaction(&out, each.transaction);
    append_key(&out, each.target);
    append_id(&out, each.moved.file);
    append_u8(&out, static_cast<uint8_t>(each.moved.type));
  }
  append_varint(&out, details.locks.size());
  for (const LeftDetails::Lock& each : details.locks) {
    append_transaction(&out, each.transaction);
    append_key(&out, each.key);
  }
  return out;
}

Result<LeftDetails> decode_left_details(Bytes bytes) {
  Decoder in(bytes);
  LeftDetails details;
  for (uint64_t left = in.varint64(); left > 0 && in.ok(); --left) {
    LeftDetails::File& file = details.files[take_id(&in)];
    file.mode = in.u32(), file.uid = in.u32(), file.gid = in.u32();
    file.accessed_ns = in.i64(), file.modified_ns = in.i64(), file.changed_ns = in.i64();
    for (uint64_t users = in.varint64(); users > 0 && in.ok(); --users) {
      const std::string name(in.sized());
      file.users[name] = in.sized();
    }
  }
  for (uint64_t left = in.varint64(); left > 0 && in.ok(); --left) {
    LeftDetails::Rename& rename = details.renames.emplace_back();
    rename.transaction = take_transaction(&in);
    rename.target = take_key(&in);
    rename.moved.file = take_id(&in);
    rename.moved.type = static_cast<meta::NodeType>(in.u8());
  }
  for (uint64_t left = in.varint64(); left > 0 && in.ok(); --left) {
    LeftDetails::Lock& lock = details.locks.emplace_back();
    lock.transaction = take_transaction(&in);
    lock.key = take_key(&in);
  }
  SWALE_RETURN_IF_ERROR(in.finish("what a node tells of the files that it has left"));
  return details;
}

}  // namespace swale::fs
