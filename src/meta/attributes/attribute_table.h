// AttributeTable: the attributes of the files whose root is one server, as a passive machine: a request
// changes the table, gives the bytes of a log record, and says what the servers of the index are to do before
// it is answered.
//
// The table is a function of its records: replaying them gives the same table (recovery), and entries() gives
// records that are as good as all before them (snapshot). A change can be taken back until its group is
// durable (undo), because the log may fail.
//
// The table is that of names, too: each name has at most one file, whose id is drawn here when it is created.
// Ids count on for the life of the store: the counter is in the records, also when all files are gone.
// Generations come from one counter of the server. A retry of truncate, remove or exclusive create is known
// by its client and number: each client has at most one of these requests under way, with ascending numbers.
// The last kClientsMax clients are remembered.
//
// Threads: none; the owner serialises calls. Errors: Result; std::bad_alloc: the owner takes the change back
// (undo_to), and the table is as it was but for the counter.
// Limits: files_max files, tables_bytes_max bytes of run tables (beyond it a sealed file is read by asking
// servers).
// Source: metakv III-C for the reduction of sizes; the rest is ours.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "meta/attributes/attributes.h"
#include "meta/index/shard.h"

namespace swale::meta {

// What the servers of the index are to do, all of them, after the record is durable and before the answer.
enum class FollowUp : uint8_t {
  kNone = 0,
  kTrim = 1,     // Shard::truncate
  kForget = 2,   // Shard::remove
  kCollect = 3,  // refuse puts from now on, give their part of the run table
};

struct Applied {
  AttributeAnswer answer;
  FollowUp follow_up = FollowUp::kNone;
  uint64_t trim_size = 0;  // of kTrim
  // The follow-up is that of an earlier truncate or removal, which failed half way, and nothing was changed:
  // apply the request again when it is done.
  bool again = false;
};

class AttributeTable final : public LoggedTable {
 public:
  static constexpr size_t kClientsMax = 1 << 16;

  explicit AttributeTable(uint32_t server = 0, size_t files_max = 16 << 20,
                          size_t tables_bytes_max = 64 * kMiB)
      : server_(server), files_max_(files_max), tables_bytes_max_(tables_bytes_max) {}

  // Appends to `record` what must be durable before the answer leaves; nothing if the request changed
  // nothing.
  Result<Applied> apply(const AttributeRequest& request, std::string* record);
  // All servers have done the follow-up. For kCollect with the file's table; then the answer is the sealed
  // file's.
  Result<AttributeAnswer> followed(const AttributeRequest& request, FollowUp what, uint64_t generation,
                                   std::string table, std::string* record);

  // The runs' places have changed: the table of a sealed file is another one; empty: none.
  void replace_table(const std::string& name, std::string table, std::string* record);
  // Calls visit(name, table) for each file that has a table of runs.
  template <class Visit>
  void for_each_table(const Visit& visit) const {
    for (const auto& [name, entry] : entries_) {
      if (!entry.table.empty()) visit(name, Bytes(entry.table));
    }
  }

  // This server's shard takes no puts of the file any more (kCollect, at the servers of the index).
  void refuse_puts(const FileId& file, std::string* record);
  bool refuses_puts(const FileId& file) const { return immutable_.contains(file); }
  // The index server has forgotten the file.
  void allow_puts(const FileId& file, std::string* record);

  // Changes that may be taken back, oldest first: the first `count` of them are durable; or all after the
  // first `count` are taken back, which needs no memory.
  size_t changes() const override { return undo_.size(); }
  void keep(size_t count) noexcept override;
  void undo_to(size_t count) noexcept;
  void undo() noexcept override { undo_to(0); }

  // Recovery. A record as apply and followed make them; kCorruption if it is none.
  Status replay(Bytes record) override;
  void for_each_record(const std::function<void(Bytes)>& visit) const override;
  // Follow-ups that a crash has interrupted.
  struct Pending {
    AttributeRequest request;
    FollowUp what;
    uint64_t generation;
    uint64_t trim_size;
  };
  std::vector<Pending> pending() const;

  size_t files() const { return entries_.size(); }
  size_t tables_bytes() const { return tables_bytes_; }
  const Attributes* find(const std::string& name) const;
  uint64_t files_drawn() const { return files_drawn_; }
  // Names in no order; for tools.
  std::vector<Attributes> list() const;
  bool consistent() const;  // for tests: looks at everything

 private:
  struct Entry {
    Attributes attributes;
    uint64_t truncated_size = 0;  // to what the last truncate cut the file
    bool trim_due = false;
    bool removed = false;   // its bytes are not yet forgotten everywhere
    bool seal_due = false;  // some servers may refuse puts already
    std::string table;
  };
  using Entries = std::unordered_map<std::string, Entry>;  // by name
  using Files = std::unordered_set<FileId, FileIdHash>;
  // How to take a change back. What it has erased is kept as it was, so that it comes back without an
  // allocation.
  struct Undo {
    std::string name = {};  // of the file
    FileId file = {};       // of a mark
    enum class What : uint8_t {
      kNothing,
      kMade,
      kChanged,
      kErased,
      kMarked,
      kUnmarked
    } what = What::kNothing;
    uint64_t files_drawn = 0;       // before
    Entry before = {};              // kChanged
    Entries::node_type entry = {};  // kErased
    Files::node_type mark = {};     // kUnmarked
    uint64_t client = 0;            // who asked for the truncate or removal; 0: it was none
    uint64_t number = 0;            // of that client, before; 0: none
  };

  Result<Applied> create(const AttributeRequest& request, std::string* record);
  Result<Applied> truncate(const AttributeRequest& request, std::string* record);
  Result<Applied> seal(const AttributeRequest& request, std::string* record);
  Result<Applied> remove(const AttributeRequest& request, std::string* record);
  Applied removed_before(const std::string& name) const;
  Result<Entry*> existing(const AttributeRequest& request);
  void close(const AttributeRequest& request, Entry* entry, std::string* record);
  bool repeated(const RequestName& from) const;
  void note(const RequestName& from);
  void note_change(const RequestName& from);
  Applied answer(const Entry& entry, bool with_table) const;
  Applied trim(const Entry& entry) const;
  Undo& begin_change(const std::string& name);
  void put(Entry entry);
  void erase(const std::string& name);
  void mark(const FileId& file, bool immutable);
  void take_back(Undo* change) noexcept;
  void append_number(std::string* record, const RequestName& from) const;
  static void append_entry(std::string* record, const Entry& entry, const RequestName& from);
  void append_erased(std::string* record, const std::string& name) const;
  static void append_mark(std::string* record, const FileId& file, bool immutable);

  const uint32_t server_;
  const size_t files_max_;
  const size_t tables_bytes_max_;
  Entries entries_;
  Files immutable_;
  std::unordered_map<uint64_t, uint64_t> numbers_;  // of clients: the last truncate or remove
  std::deque<uint64_t> clients_;                    // of numbers_, oldest first
  uint64_t generation_ = 0;
  uint64_t files_drawn_ = 0;  // how many ids
  size_t tables_bytes_ = 0;
  std::vector<Undo> undo_;
};

}  // namespace swale::meta
