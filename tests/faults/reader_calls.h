// A small directory on disk with everything in it that readers can be asked for, for tests that fail readers:
// three partitions, four epochs, keys with several records, values in value logs, a schema with extrema; and
// calls of the C interface whose answers are texts that can be compared.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "swale/swale.h"

namespace swale::faults {

class ReaderSample {
 public:
  static constexpr int kRanks = 3;
  static constexpr int kEpochs = 4;

  explicit ReaderSample(uint64_t records_per_rank);  // in each epoch
  ~ReaderSample();
  ReaderSample(const ReaderSample&) = delete;
  ReaderSample& operator=(const ReaderSample&) = delete;

  const std::string& path() const { return path_; }
  std::string key(uint64_t number) const { return "key-" + std::to_string(number); }
  uint64_t keys() const { return keys_; }

  // The directory as it was after two of its epochs, and as it is.
  void go_back() const;
  void go_on() const;

  // epoch, key → values, sorted.
  std::map<std::pair<int64_t, std::string>, std::vector<std::string>> written;

 private:
  std::map<std::string, std::string> documents() const;
  void put(const std::map<std::string, std::string>& documents) const;

  std::string path_;
  std::map<std::string, std::string> before_;  // by name in the directory
  std::map<std::string, std::string> now_;
  uint64_t keys_ = 0;
};

// What a call said: its code and, if that is OK, everything that it gave.
struct Answer {
  int code = 0;
  std::string text;
  bool operator==(const Answer&) const = default;
};

// Runs the one call of libswale that a query consists of: tests fail what happens inside.
using Around = std::function<int(const std::function<int()>&)>;
inline int as_it_is(const std::function<int()>& call) { return call(); }

struct ReaderCall {
  std::string name;
  std::function<Answer(const ReaderSample&, swale_reader*, const Around&)> ask;
};
const std::vector<ReaderCall>& reader_calls();

}  // namespace swale::faults
