#include "meta/attributes/attribute_table.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

namespace swale::meta {

// ---- requests

Result<AttributeTable::Entry*> AttributeTable::existing(const AttributeRequest& request) {
  const auto found = entries_.find(request.name);
  if (found == entries_.end()) {
    return error(Code::kNotFound, Scope::kFile, "{} {}: no such file{}", op_name(request.op), request.name,
                 request.file.none() ? "" : ": it was removed after this handle was opened");
  }
  Entry& entry = found->second;
  if (!request.file.none() && entry.attributes.file != request.file) {
    return error(
        Code::kNotFound, Scope::kFile,
        "{} {}: the file of this handle was removed, and the name is another file's now: open it again",
        op_name(request.op), request.name);
  }
  if (entry.removed && request.op != AttributeOp::kRemove) {
    return error(
        Code::kUnavailable, Scope::kFile,
        "{} {}: its removal has begun and not ended, because a server did not answer: remove it again",
        op_name(request.op), request.name);
  }
  return &entry;
}

Result<Applied> AttributeTable::apply(const AttributeRequest& request, std::string* record) {
  switch (request.op) {
    case AttributeOp::kCreate:
    case AttributeOp::kCreateExclusive:
      return create(request, record);
    case AttributeOp::kTruncate:
      return truncate(request, record);
    case AttributeOp::kSeal:
      return seal(request, record);
    case AttributeOp::kRemove:
      return remove(request, record);
    case AttributeOp::kOpen:
    case AttributeOp::kStat:
    case AttributeOp::kClose:
      break;
  }
  SWALE_ASSIGN_OR_RETURN(Entry* const entry, existing(request));
  if (request.op == AttributeOp::kClose) close(request, entry, record);
  return answer(*entry, request.op == AttributeOp::kOpen);
}

Result<Applied> AttributeTable::create(const AttributeRequest& request, std::string* record) {
  if (entries_.contains(request.name)) {
    SWALE_ASSIGN_OR_RETURN(Entry* const entry, existing(request));
    return answer(*entry, true);
  }
  if (entries_.size() >= files_max_) {
    return error(Code::kResourceExhausted, Scope::kOperation,
                 "create {}: the server has {} files, as many as it may have (option meta.files_max)",
                 request.name, files_max_);
  }
  Entry entry;
  entry.attributes = {.file = {server_, files_drawn_ + 1},
                      .name = request.name,
                      .generation = ++generation_,
                      .mode = request.mode,
                      .created_ns = request.time_ns,
                      .modified_ns = request.time_ns,
                      .creator = request.from};
  append_entry(record, entry, {});
  const Applied applied = answer(entry, false);
  put(std::move(entry));
  return applied;
}

void AttributeTable::close(const AttributeRequest& request, Entry* entry, std::string* record) {
  const Attributes& now = entry->attributes;
  // What was written in an earlier generation was cut off, or counted in the truncate's size.
  const uint64_t size = request.generation < now.generation ? now.size : std::max(now.size, request.size);
  const int64_t time = std::max(now.modified_ns, request.time_ns);
  if (now.sealed || (size == now.size && time == now.modified_ns)) return;
  Entry changed = *entry;
  changed.attributes.size = size;
  changed.attributes.modified_ns = time;
  append_entry(record, changed, {});
  put(std::move(changed));
}

Result<Applied> AttributeTable::truncate(const AttributeRequest& request, std::string* record) {
  SWALE_ASSIGN_OR_RETURN(Entry* const entry, existing(request));
  if (entry->attributes.sealed) {
    return invalid_argument("truncate {}: the file is sealed and cannot change", request.name);
  }
  if (entry->seal_due) {
    return error(
        Code::kUnavailable, Scope::kFile,
        "truncate {}: its seal has begun and not ended, because a server did not answer: seal it again",
        request.name);
  }
  if (!repeated(request.from)) {
    // An earlier truncate that has not reached all servers keeps its generation, because under a new one its
    // cut would take what was put after it.
    if (entry->trim_due) {
      Applied first = trim(*entry);
      first.again = true;
      return first;
    }
    Entry changed = *entry;
    changed.attributes.generation = ++generation_;
    changed.attributes.size = request.size;
    changed.attributes.modified_ns = std::max(changed.attributes.modified_ns, request.time_ns);
    changed.truncated_size = request.size;
    changed.trim_due = true;
    append_entry(record, changed, request.from);
    put(std::move(changed));
    note_change(request.from);
  }
  const Entry& now = entries_.at(request.name);
  return now.trim_due ? trim(now) : answer(now, false);
}

// The intent is durable before the first server refuses puts: whoever finds it, this job or the next,
// finishes it.
Result<Applied> AttributeTable::seal(const AttributeRequest& request, std::string* record) {
  SWALE_ASSIGN_OR_RETURN(Entry* const entry, existing(request));
  Applied applied = answer(*entry, true);
  if (entry->attributes.sealed) return applied;
  if (entry->trim_due) {
    applied = trim(*entry);
    applied.again = true;
    return applied;
  }
  if (!entry->seal_due) {
    Entry changed = *entry;
    changed.seal_due = true;
    append_entry(record, changed, {});
    put(std::move(changed));
  }
  applied.follow_up = FollowUp::kCollect;
  return applied;
}

Result<Applied> AttributeTable::remove(const AttributeRequest& request, std::string* record) {
  if (repeated(request.from)) return removed_before(request.name);
  SWALE_ASSIGN_OR_RETURN(Entry* const entry, existing(request));
  Entry changed = *entry;
  changed.attributes.generation = ++generation_;
  changed.removed = true;
  changed.seal_due = false;
  changed.table.clear();
  append_entry(record, changed, request.from);
  put(std::move(changed));
  note_change(request.from);
  Applied applied = answer(entries_.at(request.name), false);
  applied.follow_up = FollowUp::kForget;
  return applied;
}

// Which file it was is forgotten: the answer names none, which may be any. A file of that name that lives was
// made after it. One whose removal has not ended may be the same, so that is ended first.
Applied AttributeTable::removed_before(const std::string& name) const {
  Applied applied;
  if (const auto found = entries_.find(name); found != entries_.end() && found->second.removed) {
    applied = answer(found->second, false);
    applied.follow_up = FollowUp::kForget;
    applied.again = true;
    return applied;
  }
  applied.answer.attributes.name = name;
  return applied;
}

Result<AttributeAnswer> AttributeTable::followed(const AttributeRequest& request, FollowUp what,
                                                 uint64_t generation, std::string table,
                                                 std::string* record) {
  assert(what != FollowUp::kNone);
  const auto found = entries_.find(request.name);
  if (found == entries_.end()) {
    return error(Code::kNotFound, Scope::kFile, "{} {}: no such file", op_name(request.op), request.name);
  }
  Entry changed = found->second;
  if (what == FollowUp::kForget) {
    const AttributeAnswer gone = answer(changed, false).answer;
    if (changed.removed && changed.attributes.generation == generation) {
      append_erased(record, request.name);
      erase(request.name);
    }
    return gone;
  }
  if (what == FollowUp::kTrim && changed.trim_due && changed.attributes.generation == generation) {
    changed.trim_due = false;
  }
  if (what == FollowUp::kCollect && !changed.attributes.sealed) {
    changed.attributes.sealed = true;
    changed.seal_due = false;
    if (table.size() <= kTableBytesMax && tables_bytes_ + table.size() <= tables_bytes_max_)
      changed.table = std::move(table);
  }
  append_entry(record, changed, {});
  put(std::move(changed));
  return answer(entries_.at(request.name), what == FollowUp::kCollect).answer;
}

void AttributeTable::replace_table(const std::string& name, std::string table, std::string* record) {
  assert(entries_.contains(name));
  Entry changed = entries_.at(name);
  changed.table = std::move(table);
  append_entry(record, changed, {});
  put(std::move(changed));
}

void AttributeTable::refuse_puts(const FileId& file, std::string* record) {
  if (immutable_.contains(file)) return;
  append_mark(record, file, true);
  mark(file, true);
}

void AttributeTable::allow_puts(const FileId& file, std::string* record) {
  if (!immutable_.contains(file)) return;
  append_mark(record, file, false);
  mark(file, false);
}

// ---- changes

Applied AttributeTable::answer(const Entry& entry, bool with_table) const {
  Applied applied;
  applied.answer.attributes = entry.attributes;
  if (with_table) applied.answer.table = entry.table;
  return applied;
}

Applied AttributeTable::trim(const Entry& entry) const {
  Applied applied = answer(entry, false);
  applied.follow_up = FollowUp::kTrim;
  applied.trim_size = entry.truncated_size;
  return applied;
}

bool AttributeTable::repeated(const RequestName& from) const {
  const auto found = numbers_.find(from.client);
  return found != numbers_.end() && from.number <= found->second;
}

void AttributeTable::note(const RequestName& from) {
  if (const auto found = numbers_.find(from.client); found != numbers_.end()) {
    found->second = std::max(found->second, from.number);
    return;
  }
  clients_.push_back(from.client);
  try {
    numbers_.emplace(from.client, from.number);
  } catch (const std::bad_alloc&) {
    clients_.pop_back();
    throw;
  }
  if (clients_.size() <= kClientsMax) return;
  numbers_.erase(clients_.front());
  clients_.pop_front();
}

// The last change is that of `from`. It is undone with the number: else a repetition would be taken for one
// that was done.
void AttributeTable::note_change(const RequestName& from) {
  assert(!undo_.empty());
  const auto found = numbers_.find(from.client);
  undo_.back().number = found == numbers_.end() ? 0 : found->second;
  note(from);
  undo_.back().client = from.client;
}

// Of the three that follow, each is one change, or throws and has done nothing.
void AttributeTable::put(Entry entry) {
  const FileId file = entry.attributes.file;
  const uint64_t generation = entry.attributes.generation;
  const size_t bytes = entry.table.size();
  Undo& change = begin_change(entry.attributes.name);
  if (const auto found = entries_.find(change.name); found != entries_.end()) {
    change.what = Undo::What::kChanged;
    tables_bytes_ -= found->second.table.size();
    change.before = std::exchange(found->second, std::move(entry));
  } else {
    try {
      std::string name = change.name;
      entries_.emplace(std::move(name), std::move(entry));
    } catch (const std::bad_alloc&) {
      undo_.pop_back();
      throw;
    }
    change.what = Undo::What::kMade;
  }
  tables_bytes_ += bytes;
  generation_ = std::max(generation_, generation);
  if (file.high == server_) files_drawn_ = std::max(files_drawn_, file.low);
}

AttributeTable::Undo& AttributeTable::begin_change(const std::string& name) {
  Undo change;
  change.name = name;
  change.files_drawn = files_drawn_;
  return undo_.emplace_back(std::move(change));
}

void AttributeTable::erase(const std::string& name) {
  Undo& change = begin_change(name);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  tables_bytes_ -= found->second.table.size();
  change.what = Undo::What::kErased;
  change.entry = entries_.extract(found);
}

void AttributeTable::mark(const FileId& file, bool immutable) {
  Undo& change = begin_change({});
  change.file = file;
  if (const auto found = immutable_.find(file); found != immutable_.end()) {
    if (immutable) return;
    change.what = Undo::What::kUnmarked;
    change.mark = immutable_.extract(found);
  } else if (immutable) {
    try {
      immutable_.insert(file);
    } catch (const std::bad_alloc&) {
      undo_.pop_back();
      throw;
    }
    change.what = Undo::What::kMarked;
  }
}

// Tables never become smaller than they were before a change, so that what comes back finds its place in
// them.
void AttributeTable::take_back(Undo* change) noexcept {
  using What = Undo::What;
  const auto now = entries_.find(change->name);
  files_drawn_ = change->files_drawn;  // nobody has heard of an id that was drawn since
  assert((now != entries_.end()) == (change->what == What::kMade || change->what == What::kChanged) ||
         change->what == What::kNothing || change->what == What::kMarked || change->what == What::kUnmarked);
  if (change->what == What::kMade || change->what == What::kChanged)
    tables_bytes_ -= now->second.table.size();
  if (change->what == What::kMade) entries_.erase(now);
  if (change->what == What::kChanged) {
    tables_bytes_ += change->before.table.size();
    now->second = std::move(change->before);
  }
  if (change->what == What::kErased) {
    tables_bytes_ += change->entry.mapped().table.size();
    entries_.insert(std::move(change->entry));
  }
  if (change->what == What::kMarked) immutable_.erase(change->file);
  if (change->what == What::kUnmarked) immutable_.insert(std::move(change->mark));
}

// Tables become smaller only while nothing may come back. Without memory for that they stay as they are.
void AttributeTable::keep(size_t count) noexcept {
  assert(count <= undo_.size());
  undo_.erase(undo_.begin(), undo_.begin() + static_cast<ptrdiff_t>(count));
  if (!undo_.empty()) return;
  const auto shrink = [](auto* table) {
    constexpr size_t kBucketsKept = 1024;
    if (table->bucket_count() > kBucketsKept && table->bucket_count() > 8 * table->size()) table->rehash(0);
  };
  try {
    if (undo_.capacity() > 1024) undo_.shrink_to_fit();
    shrink(&entries_);
    shrink(&immutable_);
  } catch (const std::bad_alloc&) {
  }
}

void AttributeTable::undo_to(size_t count) noexcept {
  assert(count <= undo_.size());
  for (; undo_.size() > count; undo_.pop_back()) {
    Undo& change = undo_.back();
    take_back(&change);
    const auto asked = numbers_.find(change.client);
    if (change.client == 0 || asked == numbers_.end()) continue;
    asked->second = change.number;
    if (change.number != 0) continue;
    numbers_.erase(asked);
    std::erase(clients_, change.client);
  }
}

const Attributes* AttributeTable::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() || found->second.removed ? nullptr : &found->second.attributes;
}

std::vector<Attributes> AttributeTable::list() const {
  std::vector<Attributes> all;
  for (const auto& [name, entry] : entries_) {
    if (!entry.removed) all.push_back(entry.attributes);
  }
  return all;
}

std::vector<AttributeTable::Pending> AttributeTable::pending() const {
  std::vector<Pending> all;
  for (const auto& [name, entry] : entries_) {
    if (!entry.removed && !entry.trim_due && !entry.seal_due) continue;
    AttributeRequest request;
    request.op = entry.removed    ? AttributeOp::kRemove
                 : entry.trim_due ? AttributeOp::kTruncate
                                  : AttributeOp::kSeal;
    request.file = entry.attributes.file;
    request.name = name;
    const FollowUp what = entry.removed    ? FollowUp::kForget
                          : entry.trim_due ? FollowUp::kTrim
                                           : FollowUp::kCollect;
    all.push_back({std::move(request), what, entry.attributes.generation, entry.truncated_size});
  }
  return all;
}

bool AttributeTable::consistent() const {
  size_t bytes = 0;
  for (const auto& [name, entry] : entries_) {
    const Attributes& file = entry.attributes;
    if (file.name != name || file.file.none() || file.generation > generation_) return false;
    if (file.file.high == server_ && file.file.low > files_drawn_) return false;
    if (file.sealed && entry.seal_due) return false;
    bytes += entry.table.size();
  }
  if (bytes != tables_bytes_ || clients_.size() != numbers_.size() || clients_.size() > kClientsMax)
    return false;
  return std::all_of(clients_.begin(), clients_.end(),
                     [this](uint64_t client) { return numbers_.contains(client); });
}

}  // namespace swale::meta
