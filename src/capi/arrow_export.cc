#include "capi/arrow_export.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace swale::capi {
namespace {

using query::Column;

// What a schema owns.
struct SchemaNode {
  std::string format;
  std::string name;
  std::string metadata;
  std::vector<ArrowSchema> storage;
  std::vector<ArrowSchema*> children;
};

// What an array owns. Its children have shares of their own: a consumer may move one out and release the
// rest.
struct ArrayNode {
  std::shared_ptr<const query::Batch> batch;
  const void* buffers[3] = {};
  std::vector<ArrowArray> storage;
  std::vector<ArrowArray*> children;
};

template <class Struct, class Node>
void release_node(Struct* of) {
  const std::unique_ptr<Node> node(static_cast<Node*>(of->private_data));
  for (Struct* child : node->children) {
    if (child->release != nullptr) child->release(child);
  }
  of->release = nullptr;
}

// Gives `out` to the node, with children that are released: so whatever comes after may throw.
template <class Struct, class Node>
void adopt(std::unique_ptr<Node> node, size_t children, Struct* out) {
  node->storage.assign(children, Struct{});
  for (Struct& child : node->storage) node->children.push_back(&child);
  out->n_children = static_cast<int64_t>(children);
  out->children = children == 0 ? nullptr : node->children.data();
  out->private_data = node.release();
  out->release = &release_node<Struct, Node>;
}

void append_text(std::string_view text, std::string* out) {
  const auto bytes = static_cast<int32_t>(text.size());
  out->append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  *out += text;
}

// One pair, as the interface encodes them.
std::string unit_metadata(const std::string& unit) {
  if (unit.empty()) return {};
  const int32_t pairs = 1;
  std::string metadata(reinterpret_cast<const char*>(&pairs), sizeof pairs);
  append_text("unit", &metadata);
  append_text(unit, &metadata);
  return metadata;
}

void make_schema(std::string format, const std::string& name, const std::string& unit, bool nullable,
                 size_t children, ArrowSchema* out) {
  auto node = std::make_unique<SchemaNode>();
  node->format = std::move(format);
  node->name = name;
  node->metadata = unit_metadata(unit);
  *out = {};
  out->format = node->format.c_str();
  out->name = node->name.c_str();
  out->metadata = node->metadata.empty() ? nullptr : node->metadata.data();
  out->flags = nullable ? ARROW_FLAG_NULLABLE : 0;
  adopt(std::move(node), children, out);
}

bool is_list(const Column& column) { return column.type == Column::Type::kNumber && column.count > 1; }

// `buffers` are those of the format; an empty one points to something all the same: not all consumers take
// NULL.
void make_array(const std::shared_ptr<const query::Batch>& batch, uint64_t length, uint64_t nulls,
                std::initializer_list<const void*> buffers, size_t children, ArrowArray* out) {
  auto node = std::make_unique<ArrayNode>();
  node->batch = batch;
  std::copy(buffers.begin(), buffers.end(), node->buffers);
  *out = {};
  out->length = static_cast<int64_t>(length);
  out->null_count = static_cast<int64_t>(nulls);
  out->n_buffers = static_cast<int64_t>(buffers.size());
  out->buffers = node->buffers;
  adopt(std::move(node), children, out);
}

const void* bytes_or_something(const query::Block& block) {
  static constexpr int64_t kSomething[query::Block::kAlignment / sizeof(int64_t)] = {};
  return block.data() != nullptr ? static_cast<const void*>(block.data()) : kSomething;
}

void export_column(const Column& column, const query::ColumnData& data,
                   const std::shared_ptr<const query::Batch>& batch, ArrowArray* out) {
  const void* const validity = data.nulls == 0 ? nullptr : data.validity.data();
  const void* const bytes = bytes_or_something(data.data);
  if (is_list(column)) {
    make_array(batch, batch->rows, data.nulls, {validity}, 1, out);
    make_array(batch, batch->rows * column.count, 0, {nullptr, bytes}, 0, out->children[0]);
  } else if (column.type == Column::Type::kNumber) {
    make_array(batch, batch->rows, data.nulls, {validity, bytes}, 0, out);
  } else {
    make_array(batch, batch->rows, data.nulls, {validity, data.offsets.data(), bytes}, 0, out);
  }
}

// Runs `fill`, and releases what it has made of `out` if it throws.
template <class Struct, class Fill>
void fill_or_release(Struct* out, Fill&& fill) {
  *out = {};
  try {
    fill();
  } catch (...) {
    if (out->release != nullptr) out->release(out);
    *out = {};
    throw;
  }
}

}  // namespace

const char* arrow_format(run::FieldType type) {
  switch (type) {
    case run::FieldType::kF4:
      return "f";
    case run::FieldType::kF8:
      return "g";
    case run::FieldType::kI1:
      return "c";
    case run::FieldType::kI2:
      return "s";
    case run::FieldType::kI4:
      return "i";
    case run::FieldType::kI8:
      return "l";
    case run::FieldType::kU1:
      return "C";
    case run::FieldType::kU2:
      return "S";
    case run::FieldType::kU4:
      return "I";
    case run::FieldType::kU8:
      return "L";
  }
  return "n";
}

std::string arrow_format(const Column& column) {
  if (column.type == Column::Type::kText) return "u";
  if (column.type == Column::Type::kBytes) return "z";
  return column.count == 1 ? arrow_format(column.number) : "+w:" + std::to_string(column.count);
}

void export_schema(std::span<const Column> columns, ArrowSchema* out) {
  fill_or_release(out, [&] {
    make_schema("+s", "", "", false, columns.size(), out);
    for (size_t i = 0; i < columns.size(); ++i) {
      const Column& column = columns[i];
      ArrowSchema* const child = out->children[i];
      make_schema(arrow_format(column), column.name, column.unit, column.nullable, is_list(column) ? 1 : 0,
                  child);
      if (is_list(column)) make_schema(arrow_format(column.number), "item", "", false, 0, child->children[0]);
    }
  });
}

void export_batch(std::span<const Column> columns, query::Batch batch, ArrowArray* out) {
  fill_or_release(out, [&] {
    const auto shared = std::make_shared<const query::Batch>(std::move(batch));
    make_array(shared, shared->rows, 0, {nullptr}, columns.size(), out);
    for (size_t i = 0; i < columns.size(); ++i)
      export_column(columns[i], shared->columns[i], shared, out->children[i]);
  });
}

}  // namespace swale::capi
