#include "io/disk_measure.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "base/rng.h"
#include "io/io_queue.h"

namespace swale::io {
namespace {

constexpr uint64_t kBlockBytes = kMiB;         // of transfers in order
constexpr uint64_t kDiskPageBytes = 4 * kKiB;  // of all others
constexpr uint64_t kFileBytesMin = 4 * kMiB;
constexpr uint64_t kFirstGap = 16 * kKiB;
constexpr uint64_t kGapStep = 4;
constexpr uint32_t kReadsMin = 3;   // of each distance
constexpr uint32_t kReadsMax = 64;  // likewise
constexpr uint32_t kDepthMax = 64;
constexpr uint32_t kReadsOfDepthMin = 16;
constexpr uint32_t kReadsOfDepthMax = 20'000;
// A disk whose reads take so much longer somewhere else than where the last one ended has a head that moves.
constexpr double kMovesShare = 0.5;
constexpr Nanos kMovesMin = 100'000;
// Of a disk with a head: as the presets that are built in.
constexpr uint32_t kDiskSlots = 128;
constexpr uint64_t kDiskMergeBytes = 512 * kKiB;
constexpr uint32_t kFlashSlots = 1024;
// Shares of the duration.
constexpr double kFillShare = 0.4, kReadShare = 0.2, kGapShare = 0.2, kSyncShare = 0.1, kDepthShare = 0.1;

Nanos median(std::vector<Nanos> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Measurement {
 public:
  Measurement(Device& device, const Clock& clock, const MeasureOptions& options,
              const MeasureProgress& progress)
      : device_(device), clock_(clock), options_(options), progress_(progress), begin_(clock.now()) {}

  Result<DiskMeasurement> run() {
    SWALE_RETURN_IF_ERROR(open());
    SWALE_RETURN_IF_ERROR(fill());
    SWALE_RETURN_IF_ERROR(read_in_order());
    SWALE_RETURN_IF_ERROR(read_at_distances());
    SWALE_RETURN_IF_ERROR(write_and_sync());
    SWALE_RETURN_IF_ERROR(read_at_depths());
    found_.direct = file_->direct_alignment() > 0;
    fit();
    return std::move(found_);
  }

 private:
  Status open() {
    SWALE_ASSIGN_OR_RETURN(block_, Buffer::allocate(kBlockBytes));
    for (uint64_t at = 0; at < kBlockBytes; at += sizeof(uint64_t)) {  // a file system may compress
      const uint64_t word = rng_.next();
      std::copy_n(reinterpret_cast<const char*>(&word), sizeof(word), block_.data() + at);
    }
    const std::string path = fmt::format("{}/.swale-measure.{}", options_.directory, ::getpid());
    SWALE_ASSIGN_OR_RETURN(file_, device_.open(path, OpenMode::kCreate));
    file_->prefer_direct();
    return device_.remove(path);
  }

  void tell(std::string_view what) const {
    if (progress_) progress_(what, clock_.now() - begin_, options_.duration);
  }
  // The time at which a step that begins now and has this share of the duration ends.
  Nanos end_of(double share) const {
    return clock_.now() + static_cast<Nanos>(share * static_cast<double>(options_.duration));
  }
  MutableBytes page() { return block_.span().first(kDiskPageBytes); }
  // A multiple of a page, such that `bytes` from it on are in the file.
  uint64_t place(uint64_t bytes) {
    return rng_.below((found_.file_bytes - bytes) / kDiskPageBytes + 1) * kDiskPageBytes;
  }

  Status fill() {
    const uint64_t wanted = std::max(kFileBytesMin, options_.file_bytes / kBlockBytes * kBlockBytes);
    const Nanos begin = clock_.now();
    const Nanos end = end_of(kFillShare);
    while (found_.file_bytes < wanted && (found_.file_bytes < kFileBytesMin || clock_.now() < end)) {
      tell("writing");
      const Status written = file_->pwrite(found_.file_bytes, block_.bytes());
      if (written.code() == Code::kNoSpace)
        return error(
            Code::kNoSpace, Scope::kOperation,
            "{}: the disk was full after {} of the {} bytes that the measurement writes; its file is "
            "removed; give it less to write, or free space",
            options_.directory, found_.file_bytes, wanted);
      SWALE_RETURN_IF_ERROR(written);
      found_.file_bytes += kBlockBytes;
    }
    SWALE_RETURN_IF_ERROR(file_->sync());
    found_.model.write_bytes_per_s = rate(found_.file_bytes, clock_.now() - begin);
    return {};
  }

  Status read_in_order() {
    SWALE_RETURN_IF_ERROR(read_exactly(*file_, 0, block_.span()));  // the head is there from now on
    const Nanos begin = clock_.now();
    const Nanos end = end_of(kReadShare);
    uint64_t at = kBlockBytes;
    while (at < found_.file_bytes && (at < kFileBytesMin || clock_.now() < end)) {
      tell("reading");
      SWALE_RETURN_IF_ERROR(read_exactly(*file_, at, block_.span()));
      at += kBlockBytes;
    }
    found_.model.read_bytes_per_s = rate(at - kBlockBytes, clock_.now() - begin);
    return {};
  }

  static double rate(uint64_t bytes, Nanos time) {
    return static_cast<double>(bytes) / to_seconds(std::max<Nanos>(1, time));
  }

  // All distances in turn, so that none has the disk's good minutes for itself.
  Status read_at_distances() {
    found_.gaps.push_back({});
    for (uint64_t gap = kFirstGap; gap <= found_.file_bytes / 2; gap *= kGapStep)
      found_.gaps.push_back({.bytes = gap});
    std::vector<std::vector<Nanos>> latencies(found_.gaps.size());
    const Nanos end = end_of(kGapShare);
    for (uint32_t turn = 0; turn < kReadsMax && (turn < kReadsMin || clock_.now() < end); ++turn) {
      tell("reading at distances");
      for (size_t i = 0; i < found_.gaps.size(); ++i) {
        const uint64_t first = place(found_.gaps[i].bytes + 2 * kDiskPageBytes);
        SWALE_RETURN_IF_ERROR(read_exactly(*file_, first, page()));
        const Nanos begin = clock_.now();
        SWALE_RETURN_IF_ERROR(read_exactly(*file_, first + kDiskPageBytes + found_.gaps[i].bytes, page()));
        latencies[i].push_back(clock_.now() - begin);
      }
    }
    for (size_t i = 0; i < found_.gaps.size(); ++i) {
      found_.gaps[i].latency = median(latencies[i]);
      found_.gaps[i].reads = static_cast<uint32_t>(latencies[i].size());
    }
    return {};
  }

  // One after the other in the file, so that a head moves little.
  Status write_and_sync() {
    std::vector<Nanos> writes, syncs;
    const Nanos end = end_of(kSyncShare);
    for (uint64_t at = 0; at < found_.file_bytes && writes.size() < kReadsMax &&
                          (writes.size() < kReadsMin || clock_.now() < end);
         at += kDiskPageBytes) {
      tell("syncing");
      const Nanos begin = clock_.now();
      SWALE_RETURN_IF_ERROR(file_->pwrite(at, block_.bytes().substr(0, kDiskPageBytes)));
      const Nanos written = clock_.now();
      SWALE_RETURN_IF_ERROR(file_->sync());
      writes.push_back(written - begin);
      syncs.push_back(clock_.now() - written);
    }
    page_write_ = median(writes);
    found_.model.sync_latency = median(syncs);
    return {};
  }

  Status read_at_depths() {
    SWALE_ASSIGN_OR_RETURN(const auto queue, device_.make_queue(kDepthMax));
    SWALE_ASSIGN_OR_RETURN(Buffer pages, Buffer::allocate(kDepthMax * kDiskPageBytes));
    constexpr double kSteps = 7;  // 1 to 64
    for (uint32_t depth = 1; depth <= kDepthMax; depth *= 2) {
      tell("reading at queue depths");
      SWALE_RETURN_IF_ERROR(read_at_depth(depth, end_of(kDepthShare / kSteps), queue.get(), pages.span()));
    }
    return {};
  }

  Status read_at_depth(uint32_t depth, Nanos end, IoQueue* queue, MutableBytes pages) {
    const auto operation = [&](uint64_t slot) {
      return Operation{.kind = Operation::Kind::kRead,
                       .file = file_.get(),
                       .offset = place(kDiskPageBytes),
                       .into = pages.subspan(slot * kDiskPageBytes, kDiskPageBytes),
                       .from = {},
                       .tag = slot};
    };
    std::vector<Operation> next;
    for (uint32_t slot = 0; slot < depth; ++slot) next.push_back(operation(slot));
    const Nanos begin = clock_.now();
    uint64_t reads = 0;
    Status failed;
    std::vector<Completion> done;
    while (!next.empty() || queue->in_flight() > 0) {
      queue->submit(next);
      next.clear();
      done.clear();
      queue->wait(1, &done);
      reads += done.size();
      for (const Completion& completion : done)
        if (!completion.status.ok() && failed.ok()) failed = completion.status;
      const bool enough =
          reads >= kReadsOfDepthMax || (reads >= kReadsOfDepthMin && clock_.now() >= end) || !failed.ok();
      if (enough) continue;  // what is in flight still counts
      for (const Completion& completion : done) next.push_back(operation(completion.tag));
    }
    SWALE_RETURN_IF_ERROR(failed);
    const double time = to_seconds(std::max<Nanos>(1, clock_.now() - begin));
    found_.depths.push_back({depth, static_cast<double>(reads) / time});
    return {};
  }

  void fit() {
    DiskModel& model = found_.model;
    const Nanos here = found_.gaps.front().latency;
    Nanos most = 0;
    for (const auto& gap : found_.gaps) most = std::max(most, gap.latency - here);
    const bool moves =
        most > std::max(kMovesMin, static_cast<Nanos>(kMovesShare * static_cast<double>(here)));
    double best = 0;
    for (const auto& depth : found_.depths) best = std::max(best, depth.reads_per_s);
    for (const auto& depth : found_.depths) {
      found_.saturating_depth = depth.depth;
      if (depth.reads_per_s >= 0.9 * best) break;
    }
    if (moves) {
      model.read_latency = model.write_latency =
          std::max<Nanos>(0, here - model.transfer(kDiskPageBytes, false));
      model.order = DiskModel::Order::kElevator;
      model.write_done = DiskModel::WriteDone::kAdmitted;
      model.slots = kDiskSlots;
      model.merge_bytes_max = kDiskMergeBytes;
      fit_positioning(here);
      return;
    }
    std::vector<Nanos> anywhere;
    for (size_t i = 1; i < found_.gaps.size(); ++i) anywhere.push_back(found_.gaps[i].latency);
    const Nanos read = median(anywhere);
    take_latency_out(&model.read_bytes_per_s, read);
    take_latency_out(&model.write_bytes_per_s, page_write_);
    model.read_latency = std::max<Nanos>(0, read - model.transfer(kDiskPageBytes, false));
    model.write_latency = std::max<Nanos>(0, page_write_ - model.transfer(kDiskPageBytes, true));
    model.slots = kFlashSlots;
    const double overlap = best / found_.depths.front().reads_per_s;
    model.channels = static_cast<uint32_t>(std::clamp<double>(std::round(overlap), 1, kDepthMax));
  }

  // A block and a page differ by their transfers: their latencies are the same. Unless noise says that a page
  // takes longer than a block.
  static void take_latency_out(double* bytes_per_s, Nanos page) {
    const double more = kBlockBytes / *bytes_per_s - to_seconds(page);
    if (more > 0) *bytes_per_s = (kBlockBytes - kDiskPageBytes) / more;
  }

  // fixed: what the shortest gap costs above passing over it. Then settle + stroke * sqrt(gap / capacity) by
  // least squares, through the gaps that are shorter to seek than to pass.
  void fit_positioning(Nanos here) {
    DiskModel& model = found_.model;
    model.capacity_bytes = options_.capacity_bytes > 0 ? options_.capacity_bytes : found_.file_bytes;
    const auto pass = [&](uint64_t gap) { return static_cast<double>(gap) / model.write_bytes_per_s * 1e9; };
    const double shortest = static_cast<double>(found_.gaps[1].latency - here);
    const double fixed = std::max(0.0, shortest - pass(found_.gaps[1].bytes));
    double count = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0, last = 0;
    for (size_t i = 1; i < found_.gaps.size(); ++i) {
      const double y = static_cast<double>(found_.gaps[i].latency - here) - fixed;
      last = std::max(last, y);
      if (y > 0.9 * pass(found_.gaps[i].bytes)) continue;
      const double x =
          std::sqrt(static_cast<double>(found_.gaps[i].bytes) / static_cast<double>(model.capacity_bytes));
      ++count, sum_x += x, sum_y += y, sum_xx += x * x, sum_xy += x * y;
    }
    const double spread = count * sum_xx - sum_x * sum_x;
    const double stroke =
        count > 1 && spread > 0 ? std::max(0.0, (count * sum_xy - sum_x * sum_y) / spread) : 0;
    const double settle = count > 0 ? std::max(0.0, (sum_y - stroke * sum_x) / count) : last;
    model.fixed = std::llround(fixed);
    model.settle = std::llround(settle);
    model.stroke = std::llround(stroke);
  }

  Device& device_;
  const Clock& clock_;
  const MeasureOptions& options_;
  const MeasureProgress& progress_;
  const Nanos begin_;
  Rng rng_{1};
  Buffer block_;
  std::unique_ptr<File> file_;
  Nanos page_write_ = 0;
  DiskMeasurement found_;
};

}  // namespace

Result<DiskMeasurement> measure_disk(Device& device, const Clock& clock, const MeasureOptions& options,
                                     const MeasureProgress& progress) {
  return Measurement(device, clock, options, progress).run();
}

}  // namespace swale::io
