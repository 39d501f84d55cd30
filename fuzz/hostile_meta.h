// What the targets of metadata servers share: requests and answers of a member of the job that says what it
// likes. Most of them decode, or nearly; their numbers come from the input.
#pragma once

#include <fmt/format.h>

#include <string>

#include "fuzz/hostile_input.h"
#include "meta/server/messages.h"

namespace swale::fuzz {

struct MetaMessage {
  uint32_t to = 0;
  meta::Method method = meta::Method::kStats;
  std::string bytes;
};

inline uint64_t meta_file_number(HostileInput* in) { return in->number() % 4; }

inline meta::Extent made_extent(HostileInput* in) {
  meta::Extent made;
  made.offset = in->number();
  made.length = in->number();
  made.place = {static_cast<meta::LogId>(in->number()), in->number()};
  return made;
}

inline meta::Run made_run(HostileInput* in) {
  const meta::Extent first = made_extent(in);
  meta::Run run;
  run.offset = first.offset, run.length = first.length, run.place = first.place;
  run.levels = in->byte() % (meta::kRunLevels + 1);
  for (uint32_t i = 0; i < run.levels; ++i) run.level[i] = {in->number(), in->number(), in->number()};
  return run;
}

inline std::string made_put(HostileInput* in, uint32_t to, const meta::FileId& file,
                            const meta::RequestName& from) {
  meta::DetectedBatch batch;
  for (uint32_t i = in->byte() % 8; i > 0; --i) batch.extents.push_back(made_extent(in));
  for (uint32_t i = in->byte() % 4; i > 0; --i) {
    batch.run_at.push_back(in->byte() % (batch.extents.size() + 1));
    batch.runs.push_back(made_run(in));
  }
  return meta::encode_put(to, file, from, batch);
}

// A request to one of so many servers.
inline MetaMessage made_message(HostileInput* in, uint32_t servers) {
  using meta::Method;
  const meta::FileId file{1, meta_file_number(in)};
  const uint32_t to = in->byte() % servers;
  const auto method = static_cast<Method>(in->byte() % 12);
  const meta::RequestName from{in->number() % 3, in->number()};
  switch (method) {
    case Method::kPut:
      return {to, method, made_put(in, to, file, from)};
    case Method::kGet: {
      meta::GetMessage get{file, in->number(), {}};
      for (uint32_t i = in->byte() % 8; i > 0; --i) get.ranges.push_back({file, in->number(), in->number()});
      return {to, method, meta::encode_get(to, get)};
    }
    case Method::kGetRuns: {
      std::vector<meta::Run> queries;
      for (uint32_t i = in->byte() % 4; i > 0; --i) queries.push_back(made_run(in));
      return {to, method, meta::encode_runs_query(to, file, queries)};
    }
    case Method::kScan:
      return {to, method, meta::encode_scan(to, {file, in->number(), in->number()})};
    case Method::kTrim:
    case Method::kForget:
    case Method::kCollect:
      return {to, method, meta::encode_file(to, {file, in->number(), in->number()})};
    case Method::kRelocate:
    case Method::kRelocateTables: {
      const auto log = static_cast<meta::LogId>(in->number());
      const uint64_t address = in->number(), length = in->number();
      return {to, method, meta::encode_relocate(to, {from, {log, address, length, {7, in->number()}}})};
    }
    case Method::kAttributes: {
      meta::AttributeRequest request;
      request.op = static_cast<meta::AttributeOp>(1 + in->byte() % 9);
      request.name = fmt::format("f{}", meta_file_number(in));
      request.file = in->byte() % 8 == 0 ? file : meta::FileId{};
      request.from = from;
      request.size = in->number();
      request.generation = in->number();
      request.mode = static_cast<uint32_t>(in->number());
      return {to, method, meta::encode_attributes(to, request)};
    }
    default:
      return {to, method, std::string(4, static_cast<char>(to))};
  }
}

// To a call of another server: an error, what could be an answer, or the bytes as they are.
inline Result<std::string> made_answer(HostileInput* in, uint8_t how, const std::string& bytes) {
  if (how % 4 == 0) return error(static_cast<Code>(1 + how / 4 % 10), Scope::kOperation, "{}", bytes);
  if (how % 4 == 1) {
    meta::AttributeAnswer attributes;
    attributes.attributes.name = bytes;
    attributes.attributes.size = in->number();
    attributes.table = bytes;
    return meta::encode_answer(attributes);
  }
  if (how % 4 == 3) return bytes;
  meta::Collected collected{in->number(), how < 128, {}};
  for (uint32_t i = in->byte() % 4; i > 0; --i) collected.runs.push_back(made_run(in));
  return meta::encode_collected(collected);
}

}  // namespace swale::fuzz
