// What tests of freed epochs share: everything that a reader can be asked, and copies of directories.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "imd/optimize/free.h"
#include "imd/testing/test_optimize.h"
#include "io/device.h"

namespace swale::imd::test {

// Also by epoch, in an order that does not depend on where the records are.
struct Everything {
  using Records = std::vector<std::pair<std::string, std::string>>;
  Answers by_key;
  std::vector<Records> scans;
  std::vector<Records> parts;   // of three
  std::vector<Records> pieces;  // of any size
  std::vector<std::set<std::string>> keys;
  std::vector<size_t> sampled;
  std::vector<std::vector<run::OrderKey>> tops;
  std::string problem;  // the first failure
  Code code = Code::kOk;

  bool operator==(const Everything&) const = default;
};

inline Everything ask_everything(Reader& reader, uint64_t keys) {
  Everything all;
  all.by_key = ask_reader(reader, keys);
  all.problem = all.by_key.problem;
  const auto failed = [&](const Status& status) {
    if (!status.ok() && all.code == Code::kOk) all.code = status.code();
    if (!status.ok() && all.problem.empty()) all.problem = status.to_string();
  };
  const std::shared_ptr<const Manifest> manifest = reader.manifest_now();
  for (const EpochEntry& epoch : manifest->epochs) {
    const auto into = [](Everything::Records* records) {
      return [records](EpochNumber, Bytes key, Bytes value) {
        records->emplace_back(key, value);
        return true;
      };
    };
    failed(reader.scan(epoch.epoch, into(&all.scans.emplace_back())));
    Everything::Records& parts = all.parts.emplace_back();
    for (uint32_t part = 0; part < 3; ++part) failed(reader.scan_part(epoch.epoch, part, 3, into(&parts)));
    Everything::Records& pieces = all.pieces.emplace_back();
    for (PartitionNumber at(0); at < manifest->job_of(epoch).ranks; ++at) {
      const auto found = reader.scan_pieces(epoch.epoch, at, 1);
      failed(found.status());
      for (size_t i = 0; found.ok() && i < found->size(); ++i)
        failed(reader.scan_piece((*found)[i], into(&pieces)));
    }
    for (Everything::Records* records : {&all.scans.back(), &parts, &pieces})
      std::sort(records->begin(), records->end());
    std::set<std::string>& names = all.keys.emplace_back();
    failed(reader.keys(epoch.epoch, [&](Bytes key) { return names.emplace(key).second; }));
    size_t& sampled = all.sampled.emplace_back(0);
    failed(reader.sample(epoch.epoch, 5, 1, [&](Bytes key) {
      sampled += names.contains(std::string(key)) ? 1 : 0;
      return true;
    }));
    std::vector<run::OrderKey>& best = all.tops.emplace_back();
    if (manifest->schema.empty()) continue;
    for (const run::FieldPlace& field : manifest->schema.indexed) {
      const auto top = reader.top(epoch.epoch, field.name, 7, run::Extreme::kLargest);
      failed(top.status());
      if (!top.ok()) continue;
      for (const TopResult::Record& record : top->records) best.push_back(record.number);
      best.push_back(top->nans);
      best.push_back(top->absent);
    }
  }
  return all;
}

inline Everything ask_all_of(io::Device& device, uint64_t keys) {
  const auto reader = Reader::open(device, kOptimized, {});
  if (reader.ok()) return ask_everything(**reader, keys);
  Everything all;
  all.problem = reader.status().to_string();
  return all;
}

// A durable copy of all files below `path`.
inline void copy_tree(io::Device& from, const std::string& path, io::Device& to) {
  const auto names = from.list(path);
  if (!names.ok()) {
    const auto bytes = io::read_file(from, path, kGiB);
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    ASSERT_TRUE(io::replace_file(to, path, *bytes).ok());
    return;
  }
  ASSERT_TRUE(io::make_directories(to, path).ok());
  for (const std::string& name : *names) copy_tree(from, path + "/" + name, to);
}

inline Result<FreeReport> free_logs(io::Device& device, const std::string& keep = "last",
                                    const std::string& directory = kOptimized) {
  FreeOptions options;
  options.keep = keep;
  return free_directory(device, directory, options);
}

}  // namespace swale::imd::test
