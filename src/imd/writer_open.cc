#include "imd/writer_open.h"

#include <random>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/log.h"
#include "imd/agree.h"
#include "imd/extrema_summary.h"

namespace swale::imd {
namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// An empty directory with an empty manifest. The manifest comes last: without it the directory is none of ours.
Status create_directory(io::Device& device, const std::string& directory, const WriterOptions& options) {
  SWALE_RETURN_IF_ERROR(io::make_directories(device, directory));
  Manifest manifest;
  manifest.schema = options.schema;
  manifest.layout.compression = options.compression.value_or(Codec::kNone);
  manifest.layout.index = options.index.value_or(run::IndexKind::kSketch);
  manifest.layout.bloom_bits = options.bloom_bits.value_or(run::kBloomBitsDefault);
  SWALE_RETURN_IF_ERROR(io::replace_file(device, manifest_path(directory), manifest.encode()));
  return device.sync_directory(parent_of(directory));
}

Status ensure_directory(io::Device& device, const std::string& directory, Writer::Create create,
                        const WriterOptions& options) {
  SWALE_ASSIGN_OR_RETURN(const bool exists, device.exists(manifest_path(directory)));
  if (exists) {
    return create == Writer::Create::kExclusive
               ? error(Code::kAlreadyExists, Scope::kFile, "{}: is a massive directory already", directory)
               : Status();
  }
  if (create == Writer::Create::kNever) {
    return error(Code::kNotFound, Scope::kFile, "{}: no massive directory there (no {}); create it first",
                 directory, kManifestName);
  }
  SWALE_ASSIGN_OR_RETURN(const bool taken, device.exists(directory));
  if (taken) {
    SWALE_ASSIGN_OR_RETURN(std::vector<std::string> names, device.list(directory));
    // Left by somebody who was killed while making this very directory.
    std::erase(names, fmt::format("{}.tmp", kManifestName));
    if (!names.empty()) {
      return error(Code::kAlreadyExists, Scope::kFile,
                   "{}: holds {} other files (such as {}) and no {}; give an empty or a new directory",
                   directory, names.size(), names.front(), kManifestName);
    }
  }
  return create_directory(device, directory, options);
}

// Durable before any rank cuts its logs' tails: a crash leaves the old epochs whole, or none of them.
Status drop_epochs(io::Device& device, const OpenedDirectory& opened) {
  if (opened.dropped == 0) return {};
  const std::string path = manifest_path(opened.directory);
  SWALE_RETURN_IF_ERROR(io::replace_file(device, path, opened.manifest.encode()));
  log_warn("{}: dropped {} epochs behind step {}; {} are left", path, opened.dropped, *opened.resume_after,
           opened.manifest.epochs.size());
  return {};
}

// Rank 0's part; the others see its outcome through agree().
Status prepare(net::Job& job, io::Device& device, Writer::Create create, const WriterOptions& options,
               OpenedDirectory* opened) {
  SWALE_RETURN_IF_ERROR(ensure_directory(device, opened->directory, create, options));
  SWALE_ASSIGN_OR_RETURN(opened->lock, WriterLock::acquire(device, opened->directory, opened->job_id));
  // The folders of all partitions: here, once, instead of a race of all ranks.
  for (int32_t partition = 0; partition < job.size(); partition += 1024) {
    SWALE_RETURN_IF_ERROR(
        io::make_directories(device, part_folder(opened->directory, static_cast<uint32_t>(partition))));
  }
  return device.sync_directory(opened->directory);
}

// Another schema than the directory's is a mistake; none at all is fine.
Status check_schema(const run::Schema& wanted, const Manifest& manifest, const std::string& path) {
  if (wanted.empty() || wanted == manifest.schema) return {};
  return invalid_argument(
      "{}: the directory was made with dir.schema=\"{}\" and dir.extrema=\"{}\", which cannot be changed; "
      "given were "
      "\"{}\" and \"{}\"",
      path, manifest.schema.fields_text(), manifest.schema.indexed_text(), wanted.fields_text(),
      wanted.indexed_text());
}

// The same of compression and index.
Status check_layout(const WriterOptions& wanted, const Manifest& manifest, const std::string& path) {
  const run::Layout& layout = manifest.layout;
  const auto other = [&](std::string_view option, const auto& made, const auto& given) {
    return invalid_argument("{}: the directory was made with {}={}, which cannot be changed; given was {}",
                            path, option, made, given);
  };
  if (wanted.compression && *wanted.compression != layout.compression)
    return other("dir.compression", codec_name(layout.compression), codec_name(*wanted.compression));
  if (wanted.index && *wanted.index != layout.index)
    return other("dir.index", run::index_name(layout.index), run::index_name(*wanted.index));
  if (wanted.bloom_bits && layout.filtered() && *wanted.bloom_bits != layout.bloom_bits)
    return other("dir.bloom_bits", layout.bloom_bits, *wanted.bloom_bits);
  return {};
}

// The folder of summaries, without those of epochs that were never committed.
Status prepare_summaries(io::Device& device, const OpenedDirectory& opened) {
  const std::string folder = summary_folder(opened.directory);
  SWALE_RETURN_IF_ERROR(io::make_directories(device, folder));
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, device.list(folder));
  std::unordered_set<std::string> committed;
  for (const EpochEntry& epoch : opened.manifest.epochs)
    committed.insert(summary_path(opened.directory, epoch.epoch_id));
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (!committed.contains(path)) SWALE_RETURN_IF_ERROR(device.remove(path));
  }
  return {};
}

Status open_own_part(net::Job& job, io::Device& device, const WriterOptions& options,
                     OpenedDirectory* opened) {
  const std::string path = manifest_path(opened->directory);
  SWALE_ASSIGN_OR_RETURN(const std::string json, io::read_file(device, path, kManifestBytesMax));
  SWALE_ASSIGN_OR_RETURN(opened->manifest, Manifest::decode(json, path));
  SWALE_RETURN_IF_ERROR(check_schema(options.schema, opened->manifest, path));
  SWALE_RETURN_IF_ERROR(check_layout(options, opened->manifest, path));
  if (opened->resume_after) {
    const Result<size_t> dropped = opened->manifest.drop_after(*opened->resume_after);
    if (!dropped.ok()) return invalid_argument("{}: {}", path, dropped.status().message());
    opened->dropped = *dropped;
  }
  SWALE_ASSIGN_OR_RETURN(
      opened->files,
      PartitionFiles::open(device, opened->directory, static_cast<uint32_t>(job.rank()), opened->manifest));
  return {};
}

Status take_rank_0s_word(net::Job& job, OpenedDirectory* opened) {
  std::string mine;
  append_u64(&mine, opened->job_id);
  append_u8(&mine, opened->resume_after ? 1 : 0);
  append_i64(&mine, opened->resume_after.value_or(0));
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, job.allgather(mine));
  Decoder first(all.front());
  opened->job_id = first.u64();
  const bool resumes = first.u8() != 0;
  const int64_t step = first.i64();
  opened->resume_after = resumes ? std::optional(step) : std::nullopt;
  return first.finish("job id and step of rank 0");
}

}  // namespace

Status agree(net::Job& job, const Status& mine) {
  return agree([&](Bytes bytes) { return job.allgather(bytes); }, mine);
}

Status finish_opening(net::Job& job, io::Device& device, OpenedDirectory* opened) {
  if (opened->resume_after)
    SWALE_RETURN_IF_ERROR(agree(job, job.rank() == 0 ? drop_epochs(device, *opened) : Status()));
  Status status = opened->files->cut_tails();
  if (status.ok() && job.rank() == 0 && job.size() > 1 && !opened->manifest.schema.indexed.empty())
    status = prepare_summaries(device, *opened);
  return agree(job, status);
}

Result<OpenedDirectory> open_directory(net::Job& job, io::Device& device, const std::string& directory,
                                       Writer::Create create, const WriterOptions& options) {
  OpenedDirectory opened;
  opened.directory = directory;
  // Drawn by rank 0; tells this job's epochs from those of any other that ever writes here.
  std::random_device entropy;
  opened.job_id = (uint64_t{entropy()} << 32) | entropy();
  opened.resume_after = options.resume_after;
  if (job.size() > 1) SWALE_RETURN_IF_ERROR(take_rank_0s_word(job, &opened));
  const Status prepared = job.rank() == 0 ? prepare(job, device, create, options, &opened) : Status();
  SWALE_RETURN_IF_ERROR(agree(job, prepared));
  SWALE_RETURN_IF_ERROR(agree(job, open_own_part(job, device, options, &opened)));
  return opened;
}

Status make_massive_directory(net::Job& job, io::Device& device, const std::string& directory,
                              const WriterOptions& options) {
  return agree(job, job.rank() == 0 ? ensure_directory(device, directory, Writer::Create::kExclusive, options)
                                    : Status());
}

}  // namespace swale::imd
