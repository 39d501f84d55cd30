// VisibilityModel: what a read may show of a file that several nodes write, from the table of visibility in
// docs/design/node-files.md alone. It knows no root and no message: only when calls began and ended.
//
// Each write has an interval in which its commit takes effect: from the begin of the first commit that covers
// it to the end of the first one that was successful. A byte of a read is wrong if a write that the read must
// see surely comes after the one that it shows.
//
// Threads: one. Times ascend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fs/share/share_messages.h"

namespace swale::fs {

// Bytes in tests: 0 is a hole, 1 the backing's, others the number of a write.
using Value = uint32_t;
inline constexpr Value kHole = 0, kOld = 1, kFirstWrite = 2;

class VisibilityModel {
 public:
  static constexpr uint64_t kNever = ~uint64_t{0};

  explicit VisibilityModel(uint64_t backing_size) : backing_size_(backing_size) {}

  Value wrote(NodeId node, uint64_t order, const Span& span, uint64_t now) {
    changes_.push_back({node, order, span, false, now});
    return kFirstWrite + static_cast<Value>(changes_.size() - 1);
  }
  // It must show from the end of its call on, and may show before.
  void truncate_begins(NodeId node, uint64_t order, uint64_t size, uint64_t now) {
    changes_.push_back({node, order, {size, meta::kOffsetEnd}, true, now});
    commit_begins(node, order, now);
  }
  void commit_begins(NodeId node, uint64_t order, uint64_t now) {
    for (Change& each : changes_)
      if (each.node == node && each.order <= order) each.low = std::min(each.low, now);
  }
  void commit_ends(NodeId node, uint64_t order, uint64_t now) {
    for (Change& each : changes_)
      if (each.node == node && each.order <= order && !each.truncate) each.high = std::min(each.high, now);
  }
  void truncate_ends(NodeId node, uint64_t order, uint64_t now) {
    commit_ends(node, order, now);
    for (Change& each : changes_)
      if (each.node == node && each.order == order && each.truncate) each.high = now;
  }

  // What is wrong with this read; "": nothing. `bytes` may end before the span: there the file ended.
  std::string check_read(NodeId node, const Span& span, const std::vector<Value>& bytes, uint64_t began,
                         uint64_t now) const {
    for (uint64_t i = 0; i < bytes.size(); ++i) {
      const std::string wrong = check_byte(node, span.begin + i, bytes[i], began, now);
      if (!wrong.empty()) return wrong;
    }
    if (span.begin + bytes.size() < span.end) return check_end(node, span.begin + bytes.size(), began, now);
    return "";
  }
  // A place for an append. One that was given before a truncate is not compared with those after it.
  std::string check_place(const Span& span, uint64_t began) {
    std::string wrong;
    const bool cut = std::any_of(changes_.begin(), changes_.end(),
                                 [&](const Change& each) { return each.truncate && each.high >= began; });
    for (const Change& each : changes_)
      if (!cut && !each.truncate && each.high < began && each.span.end > span.begin && !maybe_cut(each))
        wrong = fmt::format("an append at {} is before the committed end {}", span.begin, each.span.end);
    for (const Place& each : places_) {
      const bool over = each.span.begin < span.end && span.begin < each.span.end;
      const bool between = std::any_of(changes_.begin(), changes_.end(), [&](const Change& change) {
        return change.truncate && change.high >= std::min(began, each.began);
      });
      if (over && !between)
        wrong = fmt::format("two appends got the place {}, from {} on and from {} on: {}", span.begin,
                            each.began, began, told(span.begin));
    }
    places_.push_back({span, began});
    return wrong;
  }

 private:
  struct Change {
    NodeId node;
    uint64_t order;
    Span span;  // of a truncate: from its size on
    bool truncate;
    uint64_t returned;  // of a write
    uint64_t low = kNever;
    uint64_t high = kNever;
  };
  struct Place {
    Span span;
    uint64_t began;
  };
  struct Reader {
    NodeId node;
    uint64_t began;
    uint64_t now;
  };

  static bool must_show(const Change& change, const Reader& reader) {
    return change.high < reader.began ||
           (!change.truncate && change.node == reader.node && change.returned < reader.began);
  }
  // Surely. Null: what the backing had.
  static bool before(const Change* change, const Change& later, const Reader& reader) {
    if (change == nullptr) return true;
    if (change->node == later.node) return change->order < later.order;
    if (later.node == reader.node && later.low > reader.now) return true;  // not committed: on top here
    return change->high < later.low;
  }
  bool maybe_cut(const Change& write) const {
    return std::any_of(changes_.begin(), changes_.end(), [&](const Change& each) {
      return each.truncate && each.high >= write.low && each.span.begin < write.span.end;
    });
  }
  bool hidden(const Change* shown, uint64_t at, const Reader& reader) const {
    return std::any_of(changes_.begin(), changes_.end(), [&](const Change& each) {
      return each.span.begin <= at && at < each.span.end && must_show(each, reader) &&
             before(shown, each, reader);
    });
  }
  // Something that must show makes the file longer than `at`, and surely after `shown`.
  bool longer(const Change* shown, uint64_t at, const Reader& reader) const {
    return std::any_of(changes_.begin(), changes_.end(), [&](const Change& each) {
      const uint64_t end = each.truncate ? each.span.begin : each.span.end;
      return end > at && must_show(each, reader) && before(shown, each, reader);
    });
  }
  template <class Bad>
  bool any_cut(uint64_t at, const Reader& reader, const Bad& bad) const {
    return std::any_of(changes_.begin(), changes_.end(), [&](const Change& each) {
      return each.truncate && each.span.begin <= at && each.low <= reader.now && !bad(&each);
    });
  }
  std::string check_byte(NodeId node, uint64_t at, Value value, uint64_t began, uint64_t now) const {
    const Reader reader{node, began, now};
    const auto is_hidden = [&](const Change* shown) { return hidden(shown, at, reader); };
    if (value >= kFirstWrite) {
      const Change& shown = changes_[value - kFirstWrite];
      if (at < shown.span.begin || at >= shown.span.end) return fmt::format("byte {}: a strange byte", at);
      if (!is_hidden(&shown)) return "";
    } else if (value == kOld) {
      if (at < backing_size_ && !is_hidden(nullptr)) return "";
    } else {
      if (at >= backing_size_ && !is_hidden(nullptr)) return "";
      if (any_cut(at, reader, is_hidden)) return "";
    }
    return fmt::format("node {}, read from {} to {}: byte {}: {} is older than what must show: {}", node,
                       began, now, at, value, told(at));
  }
  std::string check_end(NodeId node, uint64_t at, uint64_t began, uint64_t now) const {
    const Reader reader{node, began, now};
    const auto is_longer = [&](const Change* shown) { return longer(shown, at, reader); };
    if (at >= backing_size_ && !is_longer(nullptr)) return "";
    if (any_cut(at, reader, is_longer)) return "";
    return fmt::format("node {}, read from {} to {}: the file ends at {}: {}", node, began, now, at,
                       told(at));
  }
  std::string told(uint64_t at) const {
    std::string text;
    for (const Change& each : changes_)
      if (each.span.end > at)
        text += fmt::format("\n  {}{} of node {}, order {}, {} to {}, returned {}, commit {} to {}",
                            each.truncate ? "truncate " : "write ", kFirstWrite + (&each - changes_.data()),
                            each.node, each.order, each.span.begin, each.span.end, each.returned, each.low,
                            each.high);
    return text;
  }

  const uint64_t backing_size_;
  std::vector<Change> changes_;
  std::vector<Place> places_;
};

}  // namespace swale::fs
