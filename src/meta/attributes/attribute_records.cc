// The records of a table of attributes: one for each change, and those that make the whole table.
#include <algorithm>
#include <cassert>
#include <utility>

#include "meta/attributes/attribute_table.h"

namespace swale::meta {
namespace {

// DO NOT CHANGE THESE VALUES: they are on disk (docs/formats/metadata.md).
enum RecordKind : uint8_t {
  kEntry = 1,   // all of a file's attributes
  kErased = 2,  // the file is gone
  kMark = 3,    // whether this server's shard refuses puts of the file
  kNumber = 4,  // what a client has asked for last, and the counter of generations
};

// A server would need a century. Counting on from more would begin at 0 again.
constexpr uint64_t kFilesDrawnMax = uint64_t{1} << 62;
constexpr uint64_t kGenerationMax = uint64_t{1} << 62;

enum EntryFlag : uint8_t { kTrimDue = 1, kRemoved = 2, kSealDue = 4 };

}  // namespace

void AttributeTable::append_entry(std::string* record, const Entry& entry, const RequestName& from) {
  append_u8(record, kEntry);
  append_u8(record, (entry.trim_due ? kTrimDue : 0) | (entry.removed ? kRemoved : 0) |
                        (entry.seal_due ? kSealDue : 0));
  append_u64(record, entry.truncated_size);
  append_u64(record, from.client);
  append_u64(record, from.number);
  append_attributes(record, entry.attributes);
  append_sized(record, entry.table);
}

void AttributeTable::append_erased(std::string* record, const std::string& name) const {
  append_u8(record, kErased);
  append_u64(record, generation_);
  append_u64(record, files_drawn_);
  append_sized(record, name);
}

void AttributeTable::append_mark(std::string* record, const FileId& file, bool immutable) {
  append_u8(record, kMark);
  append_u8(record, immutable ? 1 : 0);
  append_file(record, file);
}

void AttributeTable::append_number(std::string* record, const RequestName& from) const {
  append_u8(record, kNumber);
  append_u64(record, generation_);
  append_u64(record, files_drawn_);
  append_u64(record, from.client);
  append_u64(record, from.number);
}

void AttributeTable::for_each_record(const std::function<void(Bytes)>& visit) const {
  std::string record;
  append_number(&record, {});  // for the counters
  visit(record);
  for (const uint64_t client : clients_) {
    record.clear();
    append_number(&record, {client, numbers_.at(client)});
    visit(record);
  }
  for (const auto& [name, entry] : entries_) {
    record.clear();
    append_entry(&record, entry, {});
    visit(record);
  }
  for (const FileId& file : immutable_) {
    record.clear();
    append_mark(&record, file, true);
    visit(record);
  }
}

Status AttributeTable::replay(Bytes record) {
  assert(undo_.empty());  // nothing that is replayed is taken back
  Decoder in(record);
  switch (in.u8()) {
    case kEntry: {
      Entry entry;
      const uint8_t flags = in.u8();
      entry.trim_due = (flags & kTrimDue) != 0;
      entry.removed = (flags & kRemoved) != 0;
      entry.seal_due = (flags & kSealDue) != 0;
      entry.truncated_size = in.u64();
      RequestName from;
      from.client = in.u64();
      from.number = in.u64();
      entry.attributes = read_attributes(&in);
      entry.table = in.sized();
      SWALE_RETURN_IF_ERROR(in.finish("a record of attributes"));
      if (entry.table.size() > kTableBytesMax || entry.attributes.size > kOffsetEnd) {
        return corruption("a record of attributes of {}: a size of {}, a table of {} bytes",
                          entry.attributes.name, entry.attributes.size, entry.table.size());
      }
      if (entry.attributes.file.none() || entry.attributes.file.low > kFilesDrawnMax) {
        return corruption("a record of attributes of {}: no id of a file: {:016x}{:016x}",
                          entry.attributes.name, entry.attributes.file.high, entry.attributes.file.low);
      }
      if (entry.attributes.generation > kGenerationMax) {
        return corruption("a record of attributes of {}: generation {}: expected at most 2^62",
                          entry.attributes.name, entry.attributes.generation);
      }
      if (from.number != 0) note(from);
      put(std::move(entry));
      break;
    }
    case kErased: {
      generation_ = std::max(generation_, in.u64());
      files_drawn_ = std::max(files_drawn_, in.u64());
      const std::string name(in.sized());
      SWALE_RETURN_IF_ERROR(in.finish("a record of a removal"));
      erase(name);
      break;
    }
    case kMark: {
      const bool immutable = in.u8() != 0;
      const FileId file = decode_file_id(&in);
      SWALE_RETURN_IF_ERROR(in.finish("a record of a seal"));
      mark(file, immutable);
      break;
    }
    case kNumber: {
      generation_ = std::max(generation_, in.u64());
      files_drawn_ = std::max(files_drawn_, in.u64());
      RequestName from;
      from.client = in.u64();
      from.number = in.u64();
      SWALE_RETURN_IF_ERROR(in.finish("a record of a client"));
      if (from.number != 0) note(from);
      break;
    }
    default:
      return corruption("a record of attributes: of an unknown kind {}",
                        record.empty() ? 0 : static_cast<unsigned char>(record[0]));
  }
  undo_.clear();
  if (files_drawn_ > kFilesDrawnMax || generation_ > kGenerationMax) {
    return corruption("a record of attributes: {} ids were drawn, generation {}: expected at most 2^62",
                      files_drawn_, generation_);
  }
  return {};
}

}  // namespace swale::meta
