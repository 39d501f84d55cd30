// Swale's metadata store as a program has it: the calls of swale_meta.h.
#include <vector>

#include "bench/meta/client_store.h"
#include "bench/swale_call.h"
#include "swale/swale_meta.h"

namespace swale::bench {
namespace {

class SwaleClient final : public ClientStore {
 public:
  void open(int, int, const std::string& path) override {
    check(swale_job_open(nullptr, nullptr, &job_));
    check(swale_meta_open(job_, path.c_str(), SWALE_CREATE, nullptr, &meta_));
    check(swale_meta_file_open(meta_, "f", SWALE_CREATE, 0644, &file_));
  }

  void put(std::span<const meta::Extent> message) override {
    segments_.clear();
    for (const meta::Extent& each : message) {
      swale_meta_segment segment = {};
      segment.offset = each.offset;
      segment.length = each.length;
      segment.address = each.place.address;
      segment.log = each.place.log;
      segments_.push_back(segment);
    }
    check(swale_meta_put(file_, segments_.data(), segments_.size()));
  }

  void get(std::span<const meta::Extent> message, std::span<meta::Place> out) override {
    ranges_.resize(message.size());
    for (size_t i = 0; i < message.size(); ++i) ranges_[i] = {message[i].offset, message[i].length};
    swale_meta_found* found = nullptr;
    check(swale_meta_get(file_, ranges_.data(), ranges_.size(), &found));
    for (size_t i = 0; i < ranges_.size(); ++i) {
      const swale_meta_segment* segments = nullptr;
      size_t count = 0;
      check(swale_meta_found_at(found, i, &segments, &count));
      if (count != 1) die("WRONG ANSWER: not one segment");
      out[i] = {segments->log, segments->address};
    }
    swale_meta_found_free(found);
  }

  nlohmann::json about() override {
    swale_stats* all = nullptr;
    check(swale_meta_stats(meta_, &all));
    nlohmann::json sums;
    for (size_t i = 0; i < swale_stats_count(all); ++i) {
      swale_stat stat = {};
      stat.struct_bytes = sizeof stat;
      check(swale_stats_at(all, i, &stat));
      sums[stat.name] = stat.sum;
    }
    swale_stats_free(all);
    return sums;
  }

  void close() override {
    check(swale_meta_file_close(file_));
    check(swale_meta_close(meta_));
    check(swale_job_close(job_));
  }

 private:
  swale_job* job_ = nullptr;
  swale_meta* meta_ = nullptr;
  swale_meta_file* file_ = nullptr;
  std::vector<swale_meta_segment> segments_;
  std::vector<swale_meta_range> ranges_;
};

}  // namespace

std::unique_ptr<ClientStore> make_swale_client() { return std::make_unique<SwaleClient>(); }

}  // namespace swale::bench
