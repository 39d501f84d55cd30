#include "fs/losses/node_survey.h"

#include "base/coding.h"
#include "fs/share/share_coding.h"

namespace swale::fs {
namespace {

template <class Value>
void append_ranges(std::string* out, const RangeMap<Value>& ranges) {
  append_varint(out, ranges.size());
  ranges.visit(kEachByte, [&](const Span& span, const Value& value) {
    append_varint(out, span.begin);
    append_varint(out, span.end - span.begin);
    append_varint(out, value);
  });
}
template <class Value>
bool read_ranges(Decoder* in, RangeMap<Value>* ranges) {
  for (uint64_t left = in->varint64(); left > 0 && in->ok(); --left) {
    const uint64_t begin = in->varint64(), length = in->varint64(), value = in->varint64();
    if (!in->ok() || begin > meta::kOffsetEnd || length > meta::kOffsetEnd - begin) return false;
    ranges->put({begin, begin + length}, static_cast<Value>(value));
  }
  return true;
}

bool read_roots(Decoder* in, NodeSurvey* survey) {
  for (uint64_t left = in->varint64(); left > 0 && in->ok(); --left) {
    FileRoots::Known& root = survey->roots.emplace_back();
    root.file = take_id(in);
    root.size = in->u64(), root.kept_size = in->u64(), root.backing_end = in->u64();
    root.backing = take_seen(in), root.ours = take_seen(in);
    if (!read_ranges(in, &root.parts) || !read_ranges(in, &root.loose)) return false;
    for (uint64_t nodes = in->varint64(); nodes > 0 && in->ok(); --nodes) {
      const NodeId node = in->u32();
      root.changed[node] = in->u64();
    }
  }
  return true;
}

}  // namespace

std::string encode(const NodeSurvey& survey) {
  std::string out;
  append_u32(&out, survey.node);
  append_u32(&out, survey.nodes);
  append_u64(&out, survey.tree);
  append_sized(&out, survey.job);
  append_varint(&out, survey.names.size());
  for (const NodeSurvey::Name& each : survey.names) {
    append_id(&out, each.directory);
    append_sized(&out, each.name);
    append_id(&out, each.entry.file);
    append_u8(&out, static_cast<uint8_t>(each.entry.type));
  }
  append_varint(&out, survey.files.size());
  for (const auto& [id, file] : survey.files) {
    append_id(&out, id);
    append_u8(&out, file.on_backing ? 1 : 0);
    append_varint(&out, file.holders.size());
    for (const NodeId holder : file.holders) append_u32(&out, holder);
  }
  append_varint(&out, survey.roots.size());
  for (const FileRoots::Known& root : survey.roots) {
    append_id(&out, root.file);
    append_u64(&out, root.size);
    append_u64(&out, root.kept_size);
    append_u64(&out, root.backing_end);
    append_seen(&out, root.backing);
    append_seen(&out, root.ours);
    append_ranges(&out, root.parts);
    append_ranges(&out, root.loose);
    append_varint(&out, root.changed.size());
    for (const auto& [node, order] : root.changed) append_u32(&out, node), append_u64(&out, order);
  }
  append_varint(&out, survey.logs.size());
  for (const auto& [id, logged] : survey.logs) {
    append_id(&out, id);
    append_seen(&out, logged.seen);
    append_ranges(&out, logged.orders);
  }
  append_varint(&out, survey.paths.size());
  for (const auto& [id, path] : survey.paths) {
    append_id(&out, id);
    append_sized(&out, path);
  }
  append_u8(&out, survey.has_lost_power ? 1 : 0);
  return out;
}

Result<NodeSurvey> decode_survey(Bytes bytes) {
  Decoder in(bytes);
  NodeSurvey survey;
  survey.node = in.u32(), survey.nodes = in.u32(), survey.tree = in.u64();
  survey.job = in.sized();
  for (uint64_t left = in.varint64(); left > 0 && in.ok(); --left) {
    NodeSurvey::Name& name = survey.names.emplace_back();
    name.directory = take_id(&in);
    name.name = in.sized();
    name.entry.file = take_id(&in);
    name.entry.type = static_cast<meta::NodeType>(in.u8());
  }
  for (uint64_t left = in.varint64(); left > 0 && in.ok(); --left) {
    NodeSurvey::File& file = survey.files[take_id(&in)];
    file.on_backing = in.u8() != 0;
    for (uint64_t holders = in.varint64(); holders > 0 && in.ok(); --holders)
      file.holders.push_back(in.u32());
  }
  bool good = read_roots(&in, &survey);
  for (uint64_t left = good ? in.varint64() : 0; good && left > 0 && in.ok(); --left) {
    NodeSurvey::Logged& logged = survey.logs[take_id(&in)];
    logged.seen = take_seen(&in);
    good = read_ranges(&in, &logged.orders);
  }
  for (uint64_t left = good ? in.varint64() : 0; left > 0 && in.ok(); --left) {
    const meta::FileId id = take_id(&in);
    survey.paths[id] = in.sized();
  }
  survey.has_lost_power = good && in.u8() != 0;
  if (!good) return corruption("what a node has left: its ranges are none of a file");
  SWALE_RETURN_IF_ERROR(in.finish("what a node has left"));
  return survey;
}

}  // namespace swale::fs
