#include "fs/client/log_reads.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/buffer.h"
#include "base/crc32c.h"
#include "fs/client/attachment.h"
#include "fs/log/log_format.h"

namespace swale::fs {
namespace {

constexpr uint32_t kPatienceMax = 63;
constexpr size_t kAlwaysAsks = 256 << 10;  // a read of so many bytes is worth a question
constexpr size_t kReadAtOnce = 256 << 10;  // in the processor's cache until they are checked

bool whole(const ToldPlaces& told) {
  return told.mark_count <= kToldMarksMax && told.place_count <= kToldPlacesMax &&
         told.check_count <= kToldChecksMax && std::memchr(told.folder, 0, sizeof(told.folder)) != nullptr;
}

bool whole(const ToldPlace& place) {
  return place.bytes > 0 && place.place <= place.used && place.bytes <= place.used - place.place;
}

// How many bytes one call reads: of a block that is wanted whole, and of those behind it.
uint64_t run_at(const ToldPlace& place, uint64_t block, uint64_t wanted) {
  const uint64_t end = place.place / kBlockBytes + place.checks;
  uint64_t bytes = std::min<uint64_t>(kBlockBytes, place.used - block * kBlockBytes);
  while (bytes < kReadAtOnce && ++block < end) {
    const uint64_t length = std::min<uint64_t>(kBlockBytes, place.used - block * kBlockBytes);
    if (bytes + length > wanted) break;
    bytes += length;
  }
  return bytes;
}

bool are_whole(const uint32_t* checks, Bytes blocks) {
  for (; !blocks.empty(); blocks.remove_prefix(std::min<size_t>(blocks.size(), kBlockBytes)))
    if (crc32c(blocks.substr(0, kBlockBytes)) != *checks++) return false;
  return true;
}

}  // namespace

// False: not all of them are to be seen here.
bool LogReads::Told::open() {
  if (!whole(places)) return false;
  const std::string folder = places.folder;
  const auto of_log = [&](uint32_t log) {
    return mapped_log(folder + "/" + kLogPrefix + std::to_string(log));
  };
  node = mapped_log(folder + "/" + kNodeName);
  if (node == nullptr) return false;
  for (uint32_t i = 0; i < places.mark_count; ++i) mark_logs.push_back(of_log(places.marks[i].log));
  uint32_t check = 0;
  for (uint32_t i = 0; i < places.place_count; ++i) {
    const ToldPlace& place = places.places[i];
    first_check.push_back(check);
    if (!whole(place) || place.checks > places.check_count - check) return false;
    check += place.checks;
    const bool same = i > 0 && places.places[i - 1].log == place.log;
    place_logs.push_back(same ? place_logs.back() : of_log(place.log));
  }
  const auto missing = [](const auto& log) { return log == nullptr; };
  return std::none_of(mark_logs.begin(), mark_logs.end(), missing) &&
         std::none_of(place_logs.begin(), place_logs.end(), missing);
}

bool LogReads::Told::has_epoch() const { return node->has_word(offsetof(NodePage, epoch), places.epoch); }

bool LogReads::Told::has_marks() const {
  for (uint32_t i = 0; i < places.mark_count; ++i) {
    const LogMark& mark = places.marks[i];
    if (!mark_logs[i]->has_word(offsetof(LogHead, current), mark.current)) return false;
    if (mark.reserve_at != 0 && !mark_logs[i]->has_word(mark.reserve_at, mark.reserve)) return false;
  }
  return true;
}

size_t LogReads::Told::copy(uint64_t offset, MutableBytes out, bool checks) const {
  const ToldPlace* const begin = places.places;
  const ToldPlace* const end = begin + places.place_count;
  const ToldPlace* at = std::upper_bound(
      begin, end, offset, [](uint64_t wanted, const ToldPlace& place) { return wanted < place.offset; });
  if (at == begin) return 0;
  size_t done = 0;
  for (--at; at != end && done < out.size(); ++at) {
    const uint64_t wanted = offset + done;
    if (wanted < at->offset || wanted - at->offset >= at->bytes) break;
    const uint64_t skip = wanted - at->offset;
    const auto part = out.subspan(done, std::min<uint64_t>(out.size() - done, at->bytes - skip));
    if (!copy_place(static_cast<uint32_t>(at - begin), skip, part, checks)) return 0;
    done += part.size();
  }
  return done;
}

// Whole blocks are read to where they belong, and checked there; others are read beside it.
bool LogReads::Told::copy_place(uint32_t number, uint64_t skip, MutableBytes out, bool checks) const {
  const ToldPlace& place = places.places[number];
  const uint32_t first_block = place.place / kBlockBytes;
  Buffer beside;
  uint64_t in_chunk = place.place + skip;
  while (!out.empty()) {
    const uint64_t block = in_chunk / kBlockBytes, begin = block * kBlockBytes;
    const uint64_t length = std::min<uint64_t>(kBlockBytes, place.used - begin);
    auto part = out.first(std::min<uint64_t>(out.size(), begin + length - in_chunk));
    const bool has_check = block - first_block < place.checks;
    if (!has_check) part = out.first(std::min(out.size(), kReadAtOnce));  // nor have those behind it
    if (has_check && part.size() == length) part = out.first(run_at(place, block, out.size()));
    MutableBytes read = part;
    if (has_check && part.size() < length) {
      if (beside.span().empty()) {
        auto made = Buffer::allocate(kBlockBytes);
        if (!made.ok()) return false;
        beside = std::move(*made);
      }
      read = beside.span().first(length);
    }
    const uint64_t from = read.size() == part.size() ? in_chunk : begin;
    if (!place_logs[number]->read(place.chunk_at + from, read)) return false;
    if (has_check && checks &&
        !are_whole(places.checks + first_check[number] + (block - first_block), view(read)))
      return false;
    if (read.data() != part.data()) std::memcpy(part.data(), read.data() + (in_chunk - begin), part.size());
    out = out.subspan(part.size());
    in_chunk += part.size();
  }
  return true;
}

// Answers of which nobody had any use cost each small read a request more: it asks more and more rarely then.
std::shared_ptr<const LogReads::Told> LogReads::ask_again(const Ask& ask, uint64_t offset, size_t bytes) {
  if (waits_ > 0 && bytes < kAlwaysAsks) {
    --waits_;
    return nullptr;
  }
  const bool was_of_use = uses_ > 0 || !asked_;
  patience_ = was_of_use ? 0 : std::min(2 * patience_ + 1, kPatienceMax);
  waits_ = patience_;
  asked_ = true;
  uses_ = 0;
  told_ = nullptr;
  auto told = std::make_shared<Told>();
  told->places.offset = offset;
  const int failed = ask(&told->places);
  if (failed != 0 && failed != EAGAIN) refused_.store(true);
  if (failed != 0) return nullptr;
  if (!told->open()) {
    refused_.store(true);
    return nullptr;
  }
  told_ = std::move(told);
  return told_;
}

std::shared_ptr<const LogReads::Told> LogReads::told_for(const Ask& ask, uint64_t offset, size_t bytes) {
  if (refused_.load() || !mutex_.try_lock()) return nullptr;
  const MutexLock lock(mutex_, std::adopt_lock);
  const bool holds = told_ != nullptr && told_->speaks_of(offset) &&
                     (!rules_.looks_at_epoch || told_->has_epoch()) &&
                     (!rules_.looks_at_marks || told_->has_marks());
  // What is told now is of this moment, in which the read has begun.
  std::shared_ptr<const Told> told = holds ? told_ : ask_again(ask, offset, bytes);
  if (holds) {
    ++uses_;
    waits_ = 0;
  }
  return told;
}

size_t LogReads::read(const Ask& ask, uint64_t offset, MutableBytes out) {
  const auto told = told_for(ask, offset, out.size());
  if (told == nullptr) return 0;
  const size_t got = told->copy(offset, out, rules_.checks);
  if (rules_.looks_at_epoch && !told->has_epoch()) return 0;
  bytes_read_.fetch_add(got, std::memory_order_relaxed);
  return got;
}

}  // namespace swale::fs
