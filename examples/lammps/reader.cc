#include "reader.h"

#include <cstring>

namespace impact {
namespace {

AtomState decode_state(const void* value, size_t value_bytes) {
  if (value_bytes != sizeof(AtomState)) {
    fail(fmt::format("a value has {} bytes instead of {}", value_bytes, sizeof(AtomState)));
  }
  AtomState state;
  std::memcpy(&state, value, sizeof state);
  return state;
}

int64_t decode_id(const void* key, size_t key_bytes) {
  if (key_bytes != sizeof(int64_t))
    fail(fmt::format("a key has {} bytes instead of {}", key_bytes, sizeof(int64_t)));
  int64_t id = 0;
  std::memcpy(&id, key, sizeof id);
  return id;
}

int call_record_fn(void* context, int64_t epoch, const void* key, size_t key_bytes, const void* value,
                   size_t value_bytes) {
  (*static_cast<const RecordFn*>(context))(epoch, decode_id(key, key_bytes),
                                           decode_state(value, value_bytes));
  return 0;
}

void* context_of(const RecordFn& fn) { return const_cast<RecordFn*>(&fn); }

}  // namespace

Reader::Reader(const std::string& path) {
  swale_reader* reader = nullptr;
  check_swale(swale_reader_open(path.c_str(), nullptr, &reader), "swale_reader_open");
  reader_.reset(reader);
}

swale_epoch_info Reader::epoch(int64_t index) const {
  swale_epoch_info info{};
  info.struct_bytes = sizeof info;
  check_swale(swale_reader_epoch_info(reader_.get(), index, &info), "swale_reader_epoch_info");
  return info;
}

uint64_t Reader::counted(const char* name) const {
  swale_stats* all = nullptr;
  check_swale(swale_reader_stats(reader_.get(), &all), "swale_reader_stats");
  swale_stat stat{};
  stat.struct_bytes = sizeof stat;
  const int found = swale_stats_find(all, name, &stat);
  swale_stats_free(all);
  check_swale(found, "swale_stats_find");
  return stat.sum;
}

uint64_t Reader::count() const {
  uint64_t records = 0;
  check_swale(swale_reader_count(reader_.get(), SWALE_ALL_EPOCHS, &records), "swale_reader_count");
  return records;
}

std::vector<DumpRecord> Reader::trajectory(int64_t id) const {
  swale_values* values = nullptr;
  const int code = swale_reader_get(reader_.get(), &id, sizeof id, SWALE_ALL_EPOCHS, &values);
  if (code == SWALE_NOT_FOUND) return {};
  check_swale(code, "swale_reader_get");
  std::vector<DumpRecord> trajectory;
  for (size_t i = 0; i < swale_values_count(values); ++i) {
    int64_t epoch = 0;
    const void* value = nullptr;
    size_t value_bytes = 0;
    check_swale(swale_values_at(values, i, &epoch, &value, &value_bytes), "swale_values_at");
    trajectory.push_back({id, decode_state(value, value_bytes)});
  }
  swale_values_free(values);
  return trajectory;
}

size_t Reader::get_many(const std::vector<int64_t>& ids, const RecordFn& fn) const {
  std::vector<const void*> keys;
  for (const int64_t& id : ids) keys.push_back(&id);
  const std::vector<size_t> key_bytes(ids.size(), sizeof(int64_t));
  size_t found = 0;
  check_swale(swale_reader_get_many(reader_.get(), keys.data(), key_bytes.data(), ids.size(),
                                    SWALE_ALL_EPOCHS, call_record_fn, context_of(fn), &found),
              "swale_reader_get_many");
  return found;
}

std::vector<DumpRecord> Reader::fastest(int64_t epoch, size_t k) const {
  swale_top* top = nullptr;
  check_swale(swale_reader_top(reader_.get(), "kinetic_energy", epoch, k, SWALE_TOP_LARGEST, &top),
              "swale_reader_top");
  std::vector<DumpRecord> atoms;
  for (size_t i = 0; i < swale_top_count(top); ++i) {
    swale_top_record record;
    record.struct_bytes = sizeof record;
    check_swale(swale_top_at(top, i, &record), "swale_top_at");
    atoms.push_back(
        {decode_id(record.key, record.key_bytes), decode_state(record.value, record.value_bytes)});
  }
  swale_top_free(top);
  return atoms;
}

void Reader::scan(int64_t epoch, const RecordFn& fn) const {
  check_swale(swale_reader_scan(reader_.get(), epoch, call_record_fn, context_of(fn)), "swale_reader_scan");
}

}  // namespace impact
