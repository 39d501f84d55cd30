#include "imd/write/writer_open.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/log.h"
#include "net/job/agree.h"
#include "net/job/opening.h"

namespace swale::imd {
namespace {

// As swale_dir_open names them.
std::string flags_text(Create create) {
  switch (create) {
    case Create::kNever:
      return "0";
    case Create::kIfMissing:
      return "CREATE";
    case Create::kExclusive:
      break;
  }
  return "CREATE + EXCLUSIVE";
}

// The options that all ranks must give alike, as the option table names them: what the format or the protocol
// depends on, and the flags, so that none gets an answer to another's question. Others (memory, engine of the
// storage, ...) may differ.
std::vector<net::AgreedOption> agreed_options(Create create, const WriterOptions& options) {
  const auto text = [](const auto& value) {
    return value ? fmt::format("{}", *value) : std::string("as_made");
  };
  return {
      {"flags", flags_text(create)},
      {"imd.ways", fmt::format("{}", options.ways)},
      {"imd.frame_bytes", fmt::format("{}", options.frame_bytes)},
      {"imd.window", fmt::format("{}", options.window)},
      {"imd.key", std::string(run::key_text(options.schema.key))},
      {"imd.schema", options.schema.fields_text()},
      {"imd.extrema", options.schema.indexed_text()},
      {"imd.format", std::string(options.format ? run::format_name(*options.format) : "as_made")},
      {"imd.compression", std::string(options.compression ? codec_name(*options.compression) : "as_made")},
      {"imd.index", std::string(options.index ? run::index_name(*options.index) : "as_made")},
      {"imd.bloom_bits", text(options.bloom_bits)},
      {"imd.partitioner", options.partitioner.name},
      {"imd.steps", options.steps == WriterOptions::Steps::kAny ? "any" : "increasing"},
      {"imd.resume_after", options.resume_after ? fmt::format("{}", *options.resume_after) : std::string("")},
  };
}

// Left by somebody who was killed while making this very directory.
bool left_by_a_maker(const std::string& name) {
  return name == kJobsFolderName || name == kClustersFolderName || name.starts_with(kManifestName) ||
         name.starts_with(kLockName);
}

Status check_for_others(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(std::vector<std::string> names, device.list(directory));
  std::erase_if(names, left_by_a_maker);
  if (names.empty()) return {};
  return error(Code::kAlreadyExists, Scope::kFile,
               "{}: holds {} other files (such as {}) and no {}; give an empty or a new directory", directory,
               names.size(), names.front(), kManifestName);
}

// The directory itself, without a manifest; or says why it is not to be made.
Status ensure_folder(io::Device& device, const std::string& directory, Create create) {
  SWALE_ASSIGN_OR_RETURN(const bool taken, device.exists(directory));
  bool made = false;
  if (taken) {
    SWALE_ASSIGN_OR_RETURN(made, has_manifest(device, directory));
  }
  if (made && create == Create::kExclusive)
    return error(Code::kAlreadyExists, Scope::kFile, "{}: is a massive directory already", directory);
  if (!made && create == Create::kNever) {
    return error(Code::kNotFound, Scope::kFile, "{}: no massive directory there (no {}); create it first",
                 directory, kManifestName);
  }
  if (taken && !made) SWALE_RETURN_IF_ERROR(check_for_others(device, directory));
  return io::make_directories(device, directory);  // one that is there too: its name may not be durable
}

Manifest empty_manifest(const WriterOptions& options) {
  Manifest manifest;
  manifest.schema = options.schema;
  manifest.layout.format = options.format.value_or(run::ShuffleFormat::kBase);
  manifest.layout.compression = options.compression.value_or(Codec::kNone);
  manifest.layout.index = options.index.value_or(run::IndexKind::kSketch);
  manifest.layout.bloom_bits = options.bloom_bits.value_or(run::kBloomBitsDefault);
  manifest.log_place = options.log_place;
  return manifest;
}

// In the lossy format the writer is the place of a record.
Status check_partitioner(const WriterOptions& wanted, const run::Layout& layout,
                         const std::string& directory) {
  const bool by_hash = wanted.partitioner.name == kHashPartitioner;
  if (layout.format != run::ShuffleFormat::kLossy || by_hash) return {};
  return invalid_argument(
      "{}: imd.partitioner={}: with imd.format=lossy records stay where they are appended", directory,
      wanted.partitioner.name);
}

// The record of a value in pages has the value's front, as far as extrema need it.
Status check_prefix(const Manifest& manifest) {
  constexpr size_t kLimit = run::kValueBytesMax - run::kPagePointerBytes;
  if (manifest.layout.values() != run::ValueRule::kPaged || manifest.schema.indexed_bytes() <= kLimit)
    return {};
  return invalid_argument(
      "imd.extrema=\"{}\" needs the first {} bytes of each value; with imd.format={} at most {} can be had",
      manifest.schema.indexed_text(), manifest.schema.indexed_bytes(),
      run::format_name(manifest.layout.format), kLimit);
}

// With the lock taken: makes the directory's first generation, if there is none.
Status make_if_missing(io::Device& device, const std::string& directory, Create create,
                       const WriterOptions& options) {
  SWALE_ASSIGN_OR_RETURN(const bool made, has_manifest(device, directory));
  // Another job may have made it since ensure_folder looked.
  if (made && create == Create::kExclusive)
    return error(Code::kAlreadyExists, Scope::kFile, "{}: is a massive directory already", directory);
  if (made) return {};
  const Manifest manifest = empty_manifest(options);
  SWALE_RETURN_IF_ERROR(check_prefix(manifest));
  SWALE_RETURN_IF_ERROR(check_partitioner(options, manifest.layout, directory));
  return make_first_generation(device, directory, manifest);
}

std::string job_id_path(const std::string& directory, uint32_t number) {
  return fmt::format("{}/job", job_folder(directory, number));
}

std::string job_id_text(uint64_t job_id) { return fmt::format("{:016x}", job_id); }

// Another schema than the directory's is a mistake; none at all is fine. A directory of values of any length
// keeps them: it may be older than the rule that lengths are compared, and its application gives the text
// that it always gave.
Status check_schema(const run::Schema& wanted, const Manifest& manifest, const std::string& path) {
  if (wanted.key && wanted.key != manifest.schema.key) {
    return invalid_argument(
        "{}: the directory was made with imd.key={}, which cannot be changed; given was {}", path,
        run::key_text(manifest.schema.key), run::key_text(wanted.key));
  }
  const bool same = wanted.fields == manifest.schema.fields && wanted.indexed == manifest.schema.indexed &&
                    (!wanted.any_length || manifest.schema.any_length);
  if (wanted.empty() || same) return {};
  return invalid_argument(
      "{}: the directory was made with imd.schema=\"{}\" and imd.extrema=\"{}\", which cannot be changed; "
      "given were \"{}\" and \"{}\"",
      path, manifest.schema.fields_text(), manifest.schema.indexed_text(), wanted.fields_text(),
      wanted.indexed_text());
}

// The same of format, compression and index.
Status check_layout(const WriterOptions& wanted, const Manifest& manifest, const std::string& path) {
  const run::Layout& layout = manifest.layout;
  const auto other = [&](std::string_view option, const auto& made, const auto& given) {
    return invalid_argument("{}: the directory was made with {}={}, which cannot be changed; given was {}",
                            path, option, made, given);
  };
  if (wanted.format && *wanted.format != layout.format)
    return other("imd.format", run::format_name(layout.format), run::format_name(*wanted.format));
  if (wanted.compression && *wanted.compression != layout.compression)
    return other("imd.compression", codec_name(layout.compression), codec_name(*wanted.compression));
  if (wanted.index && *wanted.index != layout.index)
    return other("imd.index", run::index_name(layout.index), run::index_name(*wanted.index));
  if (wanted.bloom_bits && layout.filtered() && *wanted.bloom_bits != layout.bloom_bits)
    return other("imd.bloom_bits", layout.bloom_bits, *wanted.bloom_bits);
  return {};
}

// Rank 0's part; the others see its outcome through agree(). After the claim, jobs before this one cannot
// commit any more: only now is their epoch log final.
Status prepare(const net::Ranks& ranks, io::Device& device, Create create, const WriterOptions& options,
               const io::LockRequest& request, OpenedDirectory* opened) {
  const std::string& directory = opened->directory;
  SWALE_RETURN_IF_ERROR(ensure_folder(device, directory, create));
  SWALE_ASSIGN_OR_RETURN(opened->device, device.anchored(directory));
  SWALE_ASSIGN_OR_RETURN(WriterLock lock, acquire_writer_lock(*opened->device, directory, request));
  opened->lock = std::make_unique<WriterLock>(std::move(lock));
  SWALE_RETURN_IF_ERROR(make_if_missing(*opened->device, directory, create, options));
  SWALE_ASSIGN_OR_RETURN(const uint32_t number, claim_job(*opened->device, directory));
  SWALE_RETURN_IF_ERROR(
      io::replace_file(*opened->device, job_id_path(directory, number), job_id_text(opened->job_id)));
  SWALE_ASSIGN_OR_RETURN(opened->manifest, load_manifest(*opened->device, directory));
  opened->superseded = opened->manifest.continues;
  opened->number = number;
  const std::string path = manifest_path(directory);
  SWALE_RETURN_IF_ERROR(check_schema(options.schema, opened->manifest, path));
  SWALE_RETURN_IF_ERROR(check_layout(options, opened->manifest, path));
  SWALE_RETURN_IF_ERROR(check_partitioner(options, opened->manifest.layout, directory));
  if (options.resume_after) {
    const Result<size_t> dropped = opened->manifest.drop_after(*options.resume_after);
    if (!dropped.ok()) return invalid_argument("{}: {}", path, dropped.status().message());
    opened->dropped = *dropped;
  }
  opened->first_epoch = EpochNumber(static_cast<uint32_t>(opened->manifest.epochs.size()));
  opened->last_step = opened->manifest.last_step().value_or(kStepUnknown);
  // The folders of all partitions: here, once, instead of a race of all ranks.
  const bool in_folders = opened->manifest.log_place == LogPlace::kInFolders;
  for (int32_t partition = 0; in_folders && partition < ranks.size; partition += 1024) {
    SWALE_RETURN_IF_ERROR(
        io::make_directories(*opened->device, part_folder(directory, PartitionNumber(partition))));
  }
  return opened->device->sync_directory(directory);
}

// What rank 0 found out, for the others.
std::string encode_word(const OpenedDirectory& opened) {
  std::string word;
  append_u64(&word, opened.job_id);
  append_u32(&word, opened.number);
  append_u32(&word, opened.first_epoch);
  append_u32(&word, opened.manifest.generation);
  append_u64(&word, static_cast<uint64_t>(opened.last_step.value_or(kStepUnknown)));
  return word;
}

Status take_word(const net::Ranks& ranks, OpenedDirectory* opened) {
  const std::string mine = ranks.rank == 0 ? encode_word(*opened) : std::string();
  const Result<net::Word> told = net::first_word(ranks, mine);
  SWALE_RETURN_IF_ERROR(told.status());
  Decoder word(told->text);
  opened->job_id = word.u64();
  opened->number = word.u32();
  opened->first_epoch = EpochNumber(word.u32());
  opened->manifest.generation = word.u32();
  opened->last_step = static_cast<int64_t>(word.u64());
  return word.finish("what rank 0 says of the directory");
}

// Whether this rank's path leads to the directory that rank 0 opened.
Status check_same_directory(const OpenedDirectory& opened) {
  const std::string path = job_id_path(opened.directory, opened.number);
  const Result<std::string> id = io::read_file(*opened.device, path, kKiB);
  if (id.ok() && *id == job_id_text(opened.job_id)) return {};
  if (!id.ok() && id.status().code() != Code::kNotFound) return id.status();
  return invalid_argument(
      "{}: is not the directory that rank 0 opened (its {} {}); all ranks must give the same path on storage "
      "that all of them see",
      opened.directory, path, id.ok() ? "is another job's" : "is missing");
}

// The part of every rank but 0.
Status join(io::Device& device, OpenedDirectory* opened) {
  SWALE_ASSIGN_OR_RETURN(opened->device, device.anchored(opened->directory));
  SWALE_RETURN_IF_ERROR(check_same_directory(*opened));
  const std::string path = generation_path(opened->directory, opened->manifest.generation);
  SWALE_ASSIGN_OR_RETURN(const std::string document, io::read_file(*opened->device, path, kManifestBytesMax));
  SWALE_ASSIGN_OR_RETURN(opened->manifest, Manifest::decode(document, path));
  return {};
}

Status open_own_part(const net::Ranks& ranks, io::Device& device, const WriterOptions& options,
                     OpenedDirectory* opened) {
  if (ranks.rank != 0) SWALE_RETURN_IF_ERROR(join(device, opened));
  opened->manifest =
      next_generation(std::move(opened->manifest),
                      {opened->number, job_id_text(opened->job_id), static_cast<uint32_t>(ranks.size),
                       options.ways, options.partitioner.name});
  SWALE_ASSIGN_OR_RETURN(opened->files, PartitionFiles::create(*opened->device, opened->directory,
                                                               {opened->number, PartitionNumber(ranks.rank),
                                                                opened->manifest.log_place}));
  return {};
}

Status install(OpenedDirectory* opened) {
  SWALE_RETURN_IF_ERROR(opened->fence().check());
  SWALE_ASSIGN_OR_RETURN(opened->epoch_log, write_generation(*opened->device, opened->directory,
                                                             opened->manifest, opened->superseded));
  SWALE_RETURN_IF_ERROR(opened->fence().check());
  if (opened->dropped > 0) {
    log_warn("{}: dropped {} epochs, as resume_after says; {} are left", opened->directory, opened->dropped,
             opened->first_epoch);
  }
  return {};
}

}  // namespace

Status agree_on_options(const net::Ranks& ranks, Create create, const WriterOptions& options) {
  return net::agree_on_options(ranks, agreed_options(create, options));
}

Status finish_opening(const net::Ranks& ranks, OpenedDirectory* opened) {
  return agree(ranks, ranks.rank == 0 ? install(opened) : Status());
}

Result<OpenedDirectory> open_directory(const net::Ranks& ranks, io::Device& device,
                                       const OpenEnvironment& environment, const std::string& directory,
                                       Create create, const WriterOptions& options) {
  OpenedDirectory opened;
  opened.directory = directory;
  // Drawn by rank 0; tells this job's epochs from those of any other that ever writes here.
  opened.job_id = environment.entropy();
  io::LockRequest request = environment.lock;
  request.job = lock_job(opened.job_id);
  request.lease = options.lease;
  SWALE_ASSIGN_OR_RETURN(request.witness, ask_ranks_about_lock(ranks, device, directory));
  const Status prepared =
      ranks.rank == 0 ? prepare(ranks, device, create, options, request, &opened) : Status();
  SWALE_RETURN_IF_ERROR(agree(ranks, prepared));
  if (ranks.size > 1) SWALE_RETURN_IF_ERROR(take_word(ranks, &opened));
  if (options.steps == WriterOptions::Steps::kAny) opened.last_step.reset();
  if (const Status own = agree(ranks, open_own_part(ranks, device, options, &opened)); !own.ok()) {
    opened.discard();
    return own;
  }
  return opened;
}

WriterCoreParams OpenedDirectory::core_params(net::Conversation::Params talk, const MemoryPlan& memory,
                                              uint32_t ways) const {
  talk.window = memory.window;
  talk.frames_per_rank = memory.frames_per_rank;
  talk.frame_bytes = memory.frame_bytes;
  talk.hops = memory.hops;
  WriterCoreParams params;
  params.talk = talk;
  params.job_id = job_id;
  params.first_epoch = first_epoch;
  params.partition.rank = talk.rank;
  params.partition.size = talk.size;
  params.partition.ways = ways;
  params.partition.memory = memory;
  params.partition.indexed = manifest.schema.indexed;
  params.partition.layout = manifest.layout;
  params.partition.sources = source_home.get();
  return params;
}

Status OpenedDirectory::make_source_home(int32_t ranks, const MemoryPlan& memory) {
  if (manifest.layout.format != run::ShuffleFormat::kLossy || ranks == 1) return {};
  SWALE_ASSIGN_OR_RETURN(source_home, SourceHome::create({.device = device.get(),
                                                          .directory = directory,
                                                          .log = files->log(),
                                                          .ranks = static_cast<uint32_t>(ranks),
                                                          .memory_bytes = memory.source_bytes,
                                                          .first_epoch = first_epoch}));
  return {};
}

AppenderParams OpenedDirectory::appender_params(PartitionNumber own, uint32_t ranks,
                                                const Partitioner& partitioner, const MemoryPlan& memory) {
  const bool paged = manifest.layout.values() == run::ValueRule::kPaged;
  // Records with pages have only what extrema need: nearly every value would stand there twice.
  return {.ranks = ranks,
          .own = own,
          .lossy = manifest.layout.format == run::ShuffleFormat::kLossy,
          .partitioner = partitioner,
          .record_bytes_max = memory.record_bytes_max,
          .frames = memory.hops ? Batcher::Frames::kOneForAll : Batcher::Frames::kOneEach,
          .key_stage_bytes = memory.key_stage_bytes,
          .key_message_bytes_max = memory.key_message_bytes_max(),
          .values = &files->values(),
          .pages = paged ? &files->pages() : nullptr,
          .prefix_bytes = paged ? manifest.schema.indexed_bytes() : manifest.schema.value_bytes(),
          .schema = manifest.schema,
          .job_id = job_id,
          .first_epoch = first_epoch};
}

Committer OpenedDirectory::committer(const Clock& clock) {
  return Committer(*device, directory, manifest, std::move(*epoch_log), fence(), clock);
}

void OpenedDirectory::discard() {
  if (files) files->discard(*device);
}

Status make_massive_directory(net::Job& job, io::Device& device, const std::string& directory,
                              const WriterOptions& options) {
  const net::Ranks ranks = net::ranks_of(job);
  SWALE_RETURN_IF_ERROR(agree_on_options(ranks, Create::kExclusive, options));
  const auto make = [&]() -> Status {
    SWALE_RETURN_IF_ERROR(ensure_folder(device, directory, Create::kExclusive));
    SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<io::Device> anchored, device.anchored(directory));
    SWALE_ASSIGN_OR_RETURN(const WriterLock lock,
                           acquire_writer_lock(*anchored, directory, random_number(), options.lease));
    return make_if_missing(*anchored, directory, Create::kExclusive, options);
  };
  return agree(ranks, ranks.rank == 0 ? make() : Status());
}

}  // namespace swale::imd
