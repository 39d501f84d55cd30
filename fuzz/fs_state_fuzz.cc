// What a node's server leaves for the next one: the logs of its files' rows and of what roots know, and the
// journal of small fsyncs. Input: 1 byte that says what, then its bytes: a whole file ('F', 'R', 'j'), the
// payload of a record ('f', 'r'), or records of a journal in pages, whose magic, generation and checksum are
// made right ('J'). What is read is there after the next opening, too; all else is an error with a text.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/crc32c.h"
#include "fs/log/sync_journal.h"
#include "fs/node/files_log.h"
#include "fs/node/kept_roots.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "io/memory_device.h"

namespace swale::fs::fs_state_fuzz {
namespace {

using fuzz::require;

constexpr char kFolder[] = "/state";
constexpr uint16_t kRecordKind = 1;
constexpr uint64_t kGeneration = 9;
constexpr size_t kJournalPagesMax = 64;

void require_told(const Status& status) {
  require(status.code() == Code::kCorruption || status.code() == Code::kUnsupported);
  require(!status.message().empty());
}

void put_file(io::Device& device, const std::string& name, Bytes bytes) {
  require(io::make_directories(device, kFolder).ok());
  require(io::replace_file(device, std::string(kFolder) + "/" + name, bytes).ok());
}
// A record that is whole, with any content.
void put_record(io::Device& device, const char* prefix, uint16_t kind, Bytes payload) {
  require(io::make_directories(device, kFolder).ok());
  const auto log = StateLog::open(device, {kFolder, prefix, kind, kRecordKind}, [](Bytes) { return true; });
  require(log.ok());
  require((*log)->begin(StateLog::new_record().append(payload)).ok());
}

void check_rows(io::Device& device) {
  FilesLog::Rows rows;
  {
    const auto log = FilesLog::open(device, kFolder);
    if (!log.ok()) return require_told(log.status());
    rows = (*log)->rows();
  }
  const auto again = FilesLog::open(device, kFolder);
  require(again.ok());
  require((*again)->rows() == rows);
}

void check_roots(io::Device& device) {
  size_t files = 0;
  {
    const auto roots = KeptRoots::open(device, kFolder);
    if (!roots.ok()) return require_told(roots.status());
    const auto known = (*roots)->known();
    files = known.size();
    for (const FileRoots::Known& each : known)
      each.parts.visit({0, meta::kOffsetEnd},
                       [](const Span& span, NodeId) { require(span.begin < span.end); });
  }
  const auto again = KeptRoots::open(device, kFolder);
  require(again.ok());
  require((*again)->known().size() == files);
}

struct Seen {
  uint32_t log = 0;
  uint64_t number = 0;
  std::string payload;
  friend bool operator==(const Seen&, const Seen&) = default;
};

// What a journal has is handed out again after one more record.
void check_journal(io::Device& device) {
  const auto find = [&](std::vector<Seen>* seen, SyncJournal* journal) {
    std::vector<Status> problems;
    const Status found = journal->find(
        [&](const JournalRecord& record) -> Status {
          require(record.from <= record.end && record.payload.size() == record.end - record.from);
          seen->push_back({record.log, record.number, std::string(record.payload)});
          return {};
        },
        &problems);
    for (const Status& each : problems) require_told(each);
    if (!found.ok()) require_told(found);
    return found.ok();
  };
  std::vector<Seen> before, after;
  JournalRecord one;
  one.log = 77, one.number = 78;
  {
    SyncJournal journal(device, kFolder, kJournalHeadBytes + 2 * kPageBytes);
    if (!find(&before, &journal)) return;
    if (!journal.usable() || !journal.has_space(one.bytes())) return;
    require(journal.append({&one, 1}).ok());
  }
  SyncJournal journal(device, kFolder, kJournalHeadBytes + 2 * kPageBytes);
  require(find(&after, &journal));
  before.push_back({77, 78, ""});
  require(after == before);
}

// Pages of records, made right but for what only their fields can say.
std::string journal_of(Bytes input) {
  std::string head;
  append_u64(&head, kJournalMagic);
  append_u32(&head, kJournalVersion);
  append_u32(&head, 0);
  append_u64(&head, kGeneration);
  head.resize(kPageBytes, '\0');
  put_u32(head.data() + 12, crc32c(Bytes(head).substr(16)));
  std::string file = head;
  file.resize(kJournalHeadBytes, '\0');
  for (size_t pages = 0; !input.empty() && pages < kJournalPagesMax; ++pages) {
    std::string page(input.substr(0, std::min<size_t>(input.size(), kPageBytes)));
    input.remove_prefix(page.size());
    page.resize(kPageBytes, '\0');
    put_u64(page.data(), kJournalMagic);
    put_u64(page.data() + 16, kGeneration);
    const uint64_t from = get_u32(page.data() + 48), end = get_u32(page.data() + 52);
    const uint64_t bytes = 96 + uint64_t{get_u32(page.data() + 56)} * sizeof(LogEntry) + (end - from);
    if (from <= end && bytes <= page.size())
      put_u32(page.data() + 8, crc32c(Bytes(page).substr(12, bytes - 12)));
    file += page;
  }
  return file;
}

}  // namespace

SWALE_FUZZ_TARGET(fs_state_fuzz) {
  if (size == 0) return 0;
  const Bytes bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  io::MemoryDevice device;
  switch (data[0]) {
    case 'f':
      put_record(device, "files-", kFilesLogKind, bytes);
      check_rows(device);
      break;
    case 'F':
      put_file(device, "files-1", bytes);
      check_rows(device);
      break;
    case 'r':
      put_record(device, "roots-", kRootsLogKind, bytes);
      check_roots(device);
      break;
    case 'R':
      put_file(device, "roots-1", bytes);
      check_roots(device);
      break;
    case 'j':
      put_file(device, kJournalName, bytes);
      check_journal(device);
      break;
    case 'J':
      put_file(device, kJournalName, journal_of(bytes));
      check_journal(device);
      break;
    default:
      break;
  }
  return 0;
}

}  // namespace swale::fs::fs_state_fuzz
