// Messages, records and run tables of a metadata store. Input: 1 byte that says what, then its bytes. What
// decodes must keep its promises and encode to something that decodes to the same.
#include "base/coding.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "meta/attributes/attribute_table.h"
#include "meta/server/manifest.h"
#include "meta/server/messages.h"
#include "meta/server/run_table.h"
#include "meta/store/closing.h"
#include "meta/store/roster.h"

namespace swale::meta_messages_fuzz {
namespace {

using namespace swale::meta;
using fuzz::require;

void put(Bytes bytes) {
  const auto message = decode_put(bytes);
  if (!message.ok()) return;
  for (const Run& run : message->items.runs) require(valid(run));
  const std::string again = encode_put(1, message->file, message->from, message->items);
  require(decode_put(again).ok());
  // What one server gets of it are owned or whole items, in order.
  for (const ServerPut& each : Partition(3, 4096).split(message->file, message->items)) {
    require(each.server < 3 && each.items.runs.size() == each.items.run_at.size());
  }
}

void table(Bytes bytes) {
  const auto runs = decode_table(bytes);
  if (!runs.ok()) return;
  for (const Run& run : *runs) require(valid(run));
  const auto again = decode_table(encode_table(*runs));
  require(again.ok() && again->size() == runs->size());
  const SealedTable sealed(*runs);
  uint32_t hint = 0;
  for (const Run& run : *runs) {
    const auto found = sealed.find(run.offset, &hint);
    require(found && found->offset == run.offset && found->length > 0);
  }
}

void record(Bytes bytes) {
  AttributeTable one, two;
  if (!one.replay(bytes).ok()) return;
  one.for_each_record([&](Bytes each) { require(two.replay(each).ok()); });
  require(one.files() == two.files());
}

void others(uint8_t what, Bytes bytes) {
  switch (what) {
    case 3:
      if (const auto message = decode_get(bytes); message.ok())
        require(decode_get(encode_get(0, *message)).ok());
      break;
    case 4:
      if (const auto found = decode_found(bytes, 100); found.ok()) require(found->answered <= 100);
      break;
    case 5:
      if (const auto message = decode_runs_query(bytes); message.ok())
        require(decode_runs_query(encode_runs_query(0, message->file, message->queries)).ok());
      break;
    case 6:
      if (const auto message = decode_attributes(bytes); message.ok())
        require(decode_attributes(encode_attributes(0, *message)).ok());
      break;
    case 7:
      static_cast<void>(decode_answer(bytes).ok() && decode_collected(bytes).ok());
      break;
    case 8:
      if (const auto manifest = decode_manifest(bytes, "swale.json"); manifest.ok()) {
        const std::string text = encode_manifest(*manifest);
        require(decode_manifest(text, "swale.json").ok());
      }
      if (const auto server = decode_server_file(bytes, "server"); server.ok())
        require(*decode_server_file(encode_server_file(*server), "server") == *server);
      if (const auto closing = decode_closing(bytes, "closing"); closing.ok())
        require(decode_closing(encode_closing(*closing), "closing").ok());
      break;
    default:
      static_cast<void>(decode_scan(bytes).ok() && decode_file(bytes).ok());
      static_cast<void>(decode_scanned(bytes).ok() && decode_relocate(bytes).ok());
  }
}

}  // namespace

SWALE_FUZZ_TARGET(meta_messages_fuzz) {
  if (size == 0) return 0;
  const Bytes bytes = fuzz::as_bytes(data, size).substr(1);
  switch (data[0]) {
    case 0:
      put(bytes);
      break;
    case 1:
      table(bytes);
      break;
    case 2:
      record(bytes);
      break;
    default:
      others(data[0], bytes);
  }
  return 0;
}

}  // namespace swale::meta_messages_fuzz
