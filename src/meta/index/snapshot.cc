#include "meta/index/snapshot.h"

#include <charconv>

#include "base/crc32c.h"
#include "base/sealed_document.h"

namespace swale::meta {
namespace {

// DO NOT CHANGE THESE VALUES: they are on disk.
enum class Item : uint8_t { kEnd = 0, kFile = 1, kRelocation = 2, kClient = 3, kRemoved = 4, kRecords = 5 };

constexpr DocumentFormat kSnapshotFormat{.name = "swale-meta-shard", .version = 3, .version_min = 3};
constexpr uint64_t kNumberMax = UINT32_MAX;

constexpr std::pair<ShardFileKind, std::string_view> kKinds[] = {{ShardFileKind::kManifest, "manifest"},
                                                                 {ShardFileKind::kLog, "log"},
                                                                 {ShardFileKind::kSorted, "sorted"},
                                                                 {ShardFileKind::kSnapshot, "snapshot"},
                                                                 {ShardFileKind::kAttributes, "attributes"}};

// There is one of a job.
bool numbered(ShardFileKind kind) { return kind != ShardFileKind::kManifest; }

}  // namespace

SnapshotBuilder::SnapshotBuilder(uint32_t shard, uint64_t owner, Sequence sequence)
    : bytes_(kSnapshotHeaderBytes, '\0') {
  put_u32(bytes_.data(), kSnapshotMagic);
  put_u16(bytes_.data() + 8, kSnapshotVersion);
  put_u32(bytes_.data() + 12, shard);
  put_u64(bytes_.data() + 16, owner);
  put_u64(bytes_.data() + 24, sequence);
}

void SnapshotBuilder::add(const SnapshotFile& file) {
  append_u8(&bytes_, static_cast<uint8_t>(Item::kFile));
  append_file_id(file.id, &bytes_);
  append_u8(&bytes_, file.known ? 1 : 0);
  append_varint(&bytes_, file.generation);
  append_varint(&bytes_, file.size);
  append_varint(&bytes_, file.irregular_max);
  append_varint(&bytes_, file.rows);
  append_varint(&bytes_, file.runs.size());
  for (const StoredRun& run : file.runs) {
    append_varint(&bytes_, run.sequence);
    append_run(run.run, &bytes_);
  }
}

void SnapshotBuilder::add(const SequencedRelocation& relocation) {
  append_u8(&bytes_, static_cast<uint8_t>(Item::kRelocation));
  append_varint(&bytes_, relocation.sequence);
  append_relocation(relocation.rule, &bytes_);
}

void SnapshotBuilder::add(const SnapshotClient& client) {
  append_u8(&bytes_, static_cast<uint8_t>(Item::kClient));
  append_varint(&bytes_, client.client);
  append_varint(&bytes_, client.window.highest);
  append_varint(&bytes_, client.window.recent);
}

void SnapshotBuilder::add(const RemovedRange& range) {
  append_u8(&bytes_, static_cast<uint8_t>(Item::kRemoved));
  append_varint(&bytes_, range.high);
  append_varint(&bytes_, range.first);
  append_varint(&bytes_, range.last - range.first);
}

void SnapshotBuilder::add_records(uint64_t group, Bytes records) {
  append_u8(&bytes_, static_cast<uint8_t>(Item::kRecords));
  append_varint(&bytes_, group);
  append_sized(&bytes_, records);
}

std::string SnapshotBuilder::finish() {
  append_u8(&bytes_, static_cast<uint8_t>(Item::kEnd));
  put_u32(bytes_.data() + 4, crc32c(Bytes(bytes_).substr(8)));
  return std::move(bytes_);
}

namespace {

Status read_file_item(Decoder* decoder, const std::string& path, SnapshotFile* file) {
  file->id = read_file_id(decoder);
  file->known = decoder->u8() != 0;
  file->generation = decoder->varint64();
  file->size = decoder->varint64();
  file->irregular_max = decoder->varint64();
  file->rows = decoder->varint64();
  const uint64_t runs = decoder->varint64();
  if (!decoder->ok() || file->size > kOffsetEnd || runs > decoder->remaining())
    return corruption("{}: the file before byte {} is malformed", path, decoder->offset());
  file->runs.clear();
  for (uint64_t i = 0; i < runs; ++i) {
    StoredRun stored;
    stored.sequence = decoder->varint64();
    if (!read_run(decoder, &stored.run) || stored.sequence > kSequenceMax)
      return corruption("{}: the run before byte {} is malformed", path, decoder->offset());
    file->runs.push_back(stored);
  }
  return {};
}

}  // namespace

Result<Sequence> visit_snapshot(Bytes bytes, const std::string& path, uint32_t shard, uint64_t owner,
                                SnapshotVisitor* visitor) {
  if (bytes.size() < kSnapshotHeaderBytes || get_u32(bytes.data()) != kSnapshotMagic)
    return corruption("{}: no snapshot of a shard", path);
  if (get_u32(bytes.data() + 4) != crc32c(bytes.substr(8))) return corruption("{}: fails its checksum", path);
  if (const uint16_t version = get_u16(bytes.data() + 8); version != kSnapshotVersion)
    return error(Code::kUnsupported, Scope::kFile, "{}: snapshot of version {}; this build reads {}", path,
                 version, kSnapshotVersion);
  if (get_u32(bytes.data() + 12) != shard || get_u64(bytes.data() + 16) != owner)
    return corruption("{}: expected the snapshot {:016x} of shard {}, found {:016x} of shard {}", path, owner,
                      shard, get_u64(bytes.data() + 16), get_u32(bytes.data() + 12));
  const Sequence sequence = get_u64(bytes.data() + 24);
  if (sequence > kSequenceMax) return corruption("{}: sequence {} is out of range", path, sequence);
  Decoder decoder(bytes.substr(kSnapshotHeaderBytes));
  SnapshotFile file;
  for (;;) {
    const auto item = static_cast<Item>(decoder.u8());
    if (!decoder.ok()) return corruption("{}: has no end", path);
    if (item == Item::kEnd) break;
    if (item == Item::kFile) {
      SWALE_RETURN_IF_ERROR(read_file_item(&decoder, path, &file));
      const Status status = visitor->file(file);
      if (!status.ok()) return status.with_context(path);
    } else if (item == Item::kRelocation) {
      SequencedRelocation relocation;
      relocation.sequence = decoder.varint64();
      relocation.rule = read_relocation(&decoder);
      if (!decoder.ok() || relocation.sequence > kSequenceMax || relocation.rule.begin > relocation.rule.end)
        return corruption("{}: the relocation before byte {} is malformed", path, decoder.offset());
      SWALE_RETURN_IF_ERROR(visitor->relocation(relocation));
    } else if (item == Item::kClient) {
      SnapshotClient client;
      client.client = decoder.varint64();
      client.window.highest = decoder.varint64();
      client.window.recent = decoder.varint64();
      if (!decoder.ok())
        return corruption("{}: the client before byte {} is malformed", path, decoder.offset());
      SWALE_RETURN_IF_ERROR(visitor->client(client));
    } else if (item == Item::kRemoved) {
      RemovedRange range;
      range.high = decoder.varint64();
      range.first = decoder.varint64();
      const uint64_t more = decoder.varint64();
      range.last = range.first + more;
      if (!decoder.ok() || range.last < range.first)
        return corruption("{}: the range of removed files before byte {} is malformed", path,
                          decoder.offset());
      SWALE_RETURN_IF_ERROR(visitor->removed(range));
    } else if (item == Item::kRecords) {
      const uint64_t group = decoder.varint64();
      const Bytes records = decoder.sized();
      if (!decoder.ok()) return corruption("{}: the records before byte {} are cut", path, decoder.offset());
      SWALE_RETURN_IF_ERROR(visitor->records(group, records).with_context(path));
    } else {
      return error(Code::kUnsupported, Scope::kFile, "{}: item {} is unknown; read it with a newer swale",
                   path, static_cast<unsigned>(item));
    }
  }
  SWALE_RETURN_IF_ERROR(decoder.finish(path));
  return sequence;
}

std::string shard_file_name(uint32_t shard, uint32_t job, ShardFileKind kind, uint32_t number) {
  std::string name = fmt::format("shard-{:06}.j{:04}.", shard, job);
  for (const auto& [known, word] : kKinds) {
    if (known == kind) name += word;
  }
  if (numbered(kind)) name += fmt::format("-{:06}", number);
  return name;
}

bool parse_shard_file_name(const std::string& name, uint32_t shard, uint32_t* job, ShardFileKind* kind,
                           uint32_t* number) {
  const std::string head = fmt::format("shard-{:06}.j", shard);
  if (!name.starts_with(head)) return false;
  const char* const end = name.data() + name.size();
  const auto [after_job, bad_job] = std::from_chars(name.data() + head.size(), end, *job);
  if (bad_job != std::errc() || after_job == end || *after_job != '.') return false;
  const std::string_view rest(after_job + 1, static_cast<size_t>(end - after_job) - 1);
  *number = 0;
  for (const auto& [known, word] : kKinds) {
    if (!rest.starts_with(word)) continue;
    *kind = known;
    if (numbered(known)) {
      if (rest.size() <= word.size() + 1 || rest[word.size()] != '-') return false;
      std::from_chars(rest.data() + word.size() + 1, end, *number);
    }
    return name == shard_file_name(shard, *job, *kind, *number);
  }
  return false;
}

store::ClaimNames claims_of(const std::string& directory, uint32_t shard, uint64_t number_min) {
  const std::string folder = fmt::format("{}/shard-{:06}.claims", directory, shard);
  return {.folder = folder,
          .directory = directory,
          .path = [folder](uint32_t job) { return fmt::format("{}/j{:04}", folder, job); },
          .number = [](std::string_view name) -> std::optional<uint32_t> {
            uint32_t job = 0;
            const char* const end = name.data() + name.size();
            if (!name.starts_with('j') || std::from_chars(name.data() + 1, end, job).ptr != end)
              return std::nullopt;
            return job;
          },
          .number_min = number_min};
}

namespace {

void write_file(const ManifestFile& file, JsonWriter* json) {
  json->object();
  json->member("job", uint64_t{file.job});
  json->member("number", uint64_t{file.number});
  json->end();
}

Result<ManifestFile> read_file(const DocumentObject& object) {
  ManifestFile file;
  SWALE_ASSIGN_OR_RETURN(const uint64_t job, object.number("job", 0, kNumberMax));
  SWALE_ASSIGN_OR_RETURN(const uint64_t number, object.number("number", 0, kNumberMax));
  file.job = static_cast<uint32_t>(job);
  file.number = static_cast<uint32_t>(number);
  return file;
}

void write_named_log(const ManifestLog& log, JsonWriter* json) {
  json->object();
  json->member("job", uint64_t{log.job});
  json->member("number", uint64_t{log.number});
  json->member("bytes", hex16(log.bytes));
  json->end();
}

Result<ManifestLog> read_named_log(const DocumentObject& object) {
  SWALE_ASSIGN_OR_RETURN(const ManifestFile file, read_file(object));
  SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, object.hex("bytes"));
  return ManifestLog{file.job, file.number, bytes};
}

Result<ManifestTable> read_table(const DocumentObject& object) {
  ManifestTable table;
  SWALE_ASSIGN_OR_RETURN(table.sequence_min, object.hex("sequence_min"));
  SWALE_ASSIGN_OR_RETURN(table.sequence_max, object.hex("sequence_max"));
  if (table.sequence_max > kSequenceMax) return object.problem("sequence_max", "2^62 at most");
  SWALE_ASSIGN_OR_RETURN(table.entries, object.hex("entries"));
  SWALE_ASSIGN_OR_RETURN(const JsonValue files, object.array("files"));
  for (const JsonValue file : files) {
    SWALE_ASSIGN_OR_RETURN(const ManifestFile read, read_file(object.below(file, "a file of a table")));
    table.files.push_back(read);
  }
  return table;
}

}  // namespace

std::string ShardManifest::encode() const {
  JsonWriter json;
  begin_document(kSnapshotFormat, {}, &json);
  json.member("shard", uint64_t{shard});
  json.member("job", uint64_t{job});
  json.member("group", hex16(group));
  json.member("sequence", hex16(sequence));
  json.name("tables").array();
  for (const ManifestTable& table : tables) {
    json.object();
    json.member("sequence_min", hex16(table.sequence_min));
    json.member("sequence_max", hex16(table.sequence_max));
    json.member("entries", hex16(table.entries));
    json.name("files").array();
    for (const ManifestFile& file : table.files) write_file(file, &json);
    json.end();
    json.end();
  }
  json.end();
  json.name("snapshot");
  write_file(snapshot, &json);
  json.name("attributes");
  write_named_log(attributes, &json);
  json.name("earlier_logs").array();
  for (const ManifestLog& log : earlier_logs) write_named_log(log, &json);
  json.end();
  json.member("first_log", uint64_t{first_log});
  json.member("first_log_bytes", hex16(first_log_bytes));
  return take_sealed(&json);
}

Result<ShardManifest> ShardManifest::decode(Bytes text, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kSnapshotFormat));
  const DocumentObject root = document.root();
  ShardManifest manifest;
  SWALE_ASSIGN_OR_RETURN(const uint64_t shard, root.number("shard", 0, kNumberMax));
  SWALE_ASSIGN_OR_RETURN(const uint64_t job, root.number("job", 1, kNumberMax));
  SWALE_ASSIGN_OR_RETURN(const uint64_t first_log, root.number("first_log", 1, kNumberMax));
  manifest.shard = static_cast<uint32_t>(shard);
  manifest.job = static_cast<uint32_t>(job);
  manifest.first_log = static_cast<uint32_t>(first_log);
  SWALE_ASSIGN_OR_RETURN(manifest.first_log_bytes, root.hex("first_log_bytes"));
  SWALE_ASSIGN_OR_RETURN(manifest.group, root.hex("group"));
  SWALE_ASSIGN_OR_RETURN(manifest.sequence, root.hex("sequence"));
  if (manifest.group > kSequenceMax || manifest.sequence > kSequenceMax)
    return corruption("{}: group {} or sequence {} is out of range", path, manifest.group, manifest.sequence);
  SWALE_ASSIGN_OR_RETURN(const JsonValue tables, root.array("tables"));
  for (const JsonValue value : tables) {
    SWALE_ASSIGN_OR_RETURN(ManifestTable table, read_table(root.below(value, "a table")));
    manifest.tables.push_back(std::move(table));
  }
  SWALE_ASSIGN_OR_RETURN(manifest.snapshot, read_file(root.below(root.find("snapshot"), "the snapshot")));
  SWALE_ASSIGN_OR_RETURN(manifest.attributes,
                         read_named_log(root.below(root.find("attributes"), "the attributes")));
  SWALE_ASSIGN_OR_RETURN(const JsonValue logs, root.array("earlier_logs"));
  for (const JsonValue value : logs) {
    SWALE_ASSIGN_OR_RETURN(const ManifestLog log, read_named_log(root.below(value, "an earlier log")));
    manifest.earlier_logs.push_back(log);
  }
  return manifest;
}

std::map<std::string, uint64_t> ShardManifest::named_files() const {
  std::map<std::string, uint64_t> named;
  const auto name = [&](uint32_t of_job, ShardFileKind kind, uint32_t number, uint64_t bytes) {
    if (number != 0) named.emplace(shard_file_name(shard, of_job, kind, number), bytes);
  };
  for (const ManifestTable& table : tables) {
    for (const ManifestFile& file : table.files)
      name(file.job, ShardFileKind::kSorted, file.number, UINT64_MAX);
  }
  name(snapshot.job, ShardFileKind::kSnapshot, snapshot.number, UINT64_MAX);
  name(attributes.job, ShardFileKind::kAttributes, attributes.number, UINT64_MAX);
  for (const ManifestLog& log : earlier_logs) name(log.job, ShardFileKind::kLog, log.number, log.bytes);
  return named;
}

namespace {

// What is wrong with a log that is missing or shorter than a manifest says.
Status cut_log(const std::string& path, uint64_t bytes, uint64_t promised) {
  return corruption(
      "{}: is missing or was cut at offset {}: the shard's manifest says that {} bytes were durable; restore "
      "the file from a copy: what is missing would read as holes",
      path, bytes, promised);
}

}  // namespace

Status check_first_log(io::Device& device, const std::string& directory, uint32_t shard, uint32_t job) {
  const std::string path = directory + "/" + shard_file_name(shard, job, ShardFileKind::kManifest, 0);
  for (std::string before;;) {
    const Result<std::string> text = io::read_file(device, path, kGiB);
    if (text.status().code() == Code::kNotFound) return {};  // of a job that another one has succeeded since
    SWALE_RETURN_IF_ERROR(text.status());
    SWALE_ASSIGN_OR_RETURN(const ShardManifest manifest, ShardManifest::decode(*text, path));
    if (manifest.first_log_bytes == 0) return {};
    const std::string log =
        directory + "/" + shard_file_name(shard, manifest.job, ShardFileKind::kLog, manifest.first_log);
    SWALE_ASSIGN_OR_RETURN(const bool there, device.exists(log));
    if (there) return {};
    if (*text == before) return cut_log(log, 0, manifest.first_log_bytes);
    before = *text;  // a checkpoint may have replaced the manifest and removed the log
  }
}

Status replay_logs(io::Device& device, const std::string& directory, const ShardManifest& manifest,
                   const std::set<uint32_t>& numbers, uint64_t* group, LogVisitor* visitor,
                   const std::function<void(const ManifestLog& log, const store::LogScan& scan)>& each) {
  const auto replay = [&](ManifestLog log, uint64_t promised, store::LogTail tail) -> Status {
    const std::string path =
        directory + "/" + shard_file_name(manifest.shard, log.job, ShardFileKind::kLog, log.number);
    SWALE_ASSIGN_OR_RETURN(const store::LogScan scan,
                           replay_log(device, path, manifest.shard, owner_of(log.job, log.number), log.bytes,
                                      tail, group, visitor));
    if (scan.bytes < promised) return cut_log(path, scan.bytes, promised);
    log.bytes = scan.bytes;
    each(log, scan);
    return {};
  };
  const auto path_of = [&](uint32_t number) {
    return directory + "/" + shard_file_name(manifest.shard, manifest.job, ShardFileKind::kLog, number);
  };
  for (const ManifestLog& log : manifest.earlier_logs)
    SWALE_RETURN_IF_ERROR(replay(log, log.bytes, store::LogTail::kWhole));
  if (manifest.first_log_bytes > 0 && !numbers.contains(manifest.first_log))
    return cut_log(path_of(manifest.first_log), 0, manifest.first_log_bytes);
  uint32_t expected = manifest.first_log;
  for (auto at = numbers.lower_bound(manifest.first_log); at != numbers.end(); ++at, ++expected) {
    if (*at != expected)
      return corruption("{}: the log before it, number {}, is missing", path_of(*at), expected);
    const bool last = std::next(at) == numbers.end();
    SWALE_RETURN_IF_ERROR(replay({manifest.job, *at, ~uint64_t{0}},
                                 *at == manifest.first_log ? manifest.first_log_bytes : 0,
                                 last ? store::LogTail::kMayBeTorn : store::LogTail::kWhole));
  }
  return {};
}

}  // namespace swale::meta
