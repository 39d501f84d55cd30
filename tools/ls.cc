#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "tools/command_line.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/reading_bar.h"

namespace swale::tools {
namespace {

constexpr size_t kBatchKeys = 4096;

// The sizes of one key, in the listed epochs.
struct KeySizes {
  uint64_t values = 0;
  uint64_t bytes = 0;
  uint32_t first_epoch = 0;
  uint32_t last_epoch = 0;
};

// Prints keys in batches as they are found, so that output starts at once and ends with the limit.
class Listing {
 public:
  struct Options {
    bool sizes = false;
    bool json = false;
    Notation notation = Notation::kAuto;
    std::optional<run::KeyType> key;
    std::string pattern;
    uint64_t limit = 0;
    int64_t epoch = 0;  // of the sizes; may be kAllEpochs
  };

  Listing(imd::Reader& reader, Options options) : reader_(reader), options_(std::move(options)) {}

  // False: enough.
  Result<bool> add(Bytes key);
  Status flush();
  bool full() const { return options_.limit != 0 && listed_ == options_.limit; }
  uint64_t listed() const { return listed_; }

 private:
  bool is_wanted(const std::string& shown) const {
    return options_.pattern.empty() || ::fnmatch(options_.pattern.c_str(), shown.c_str(), 0) == 0;
  }
  void print_key(const std::string& key, const KeySizes& sizes) const;

  imd::Reader& reader_;
  const Options options_;
  std::vector<std::string> batch_;
  uint64_t listed_ = 0;
};

Result<bool> Listing::add(Bytes key) {
  if (!is_wanted(show_key(key, options_.notation, options_.key))) return true;
  batch_.emplace_back(key);
  ++listed_;
  if (full() || !options_.sizes || batch_.size() == kBatchKeys) SWALE_RETURN_IF_ERROR(flush());
  return !full() && std::ferror(stdout) == 0;
}

Status Listing::flush() {
  std::vector<KeySizes> sizes(batch_.size());
  if (options_.sizes) {
    const std::vector<Bytes> keys(batch_.begin(), batch_.end());
    const auto add_value = [&](size_t index, uint32_t epoch, Bytes value) {
      KeySizes& key = sizes[index];
      key.first_epoch = key.values == 0 ? epoch : std::min(key.first_epoch, epoch);
      key.last_epoch = std::max(key.last_epoch, epoch);
      ++key.values;
      key.bytes += value.size();
      return true;
    };
    SWALE_RETURN_IF_ERROR(reader_.get_many(keys, options_.epoch, add_value).status());
  }
  for (size_t i = 0; i < batch_.size(); ++i) print_key(batch_[i], sizes[i]);
  batch_.clear();
  return {};
}

void Listing::print_key(const std::string& key, const KeySizes& sizes) const {
  const std::string shown = show_key(key, options_.notation, options_.key);
  if (options_.json) {
    Json line = {{"key", key_json(key, options_.notation, options_.key)}};
    if (options_.sizes) {
      line.update({{"values", sizes.values},
                   {"bytes", sizes.bytes},
                   {"first_epoch", sizes.first_epoch},
                   {"last_epoch", sizes.last_epoch}});
    }
    print_json(line);
  } else if (options_.sizes) {
    const std::string epochs = sizes.first_epoch == sizes.last_epoch
                                   ? fmt::format("{}", sizes.first_epoch)
                                   : fmt::format("{}-{}", sizes.first_epoch, sizes.last_epoch);
    print_line(fmt::format("{:>8} {:>12} {:>11}  {}", sizes.values, sizes.bytes, epochs, shown));
  } else {
    print_line(shown);
  }
}

struct LsCommand {
  Common common;
  std::string pattern;
  bool sizes = false;
  bool all = false;
  uint64_t limit = 0;

  int run() const;
  static Status list(imd::Reader& reader, int64_t epoch, std::unordered_set<std::string>* seen,
                     Listing* listing);
};

// The keys of one epoch that are not in `seen`, which may be null.
Status LsCommand::list(imd::Reader& reader, int64_t epoch, std::unordered_set<std::string>* seen,
                       Listing* listing) {
  Status status;
  const Status walked = reader.keys(epoch, [&](Bytes key) {
    if (seen != nullptr && !seen->emplace(key).second) return true;
    const Result<bool> more = listing->add(key);
    if (!more.ok()) status = more.status();
    return more.ok() && *more;
  });
  return walked.ok() ? status : walked;
}

int LsCommand::run() const {
  const auto directory = common.open();
  if (!directory.ok()) return fail(directory.status());
  imd::Reader& reader = *(*directory)->reader;
  const auto epochs = static_cast<int64_t>(reader.manifest().epochs.size());
  if (epochs == 0 && !common.epoch) return kExitOk;
  const int64_t epoch = common.epoch.value_or(epochs - 1);
  if (const auto known = reader.count(epoch); !known.ok()) return fail(known.status());
  Listing listing(reader, {.sizes = sizes,
                           .json = common.json,
                           .notation = common.notation(),
                           .key = reader.manifest().schema.key,
                           .pattern = pattern,
                           .limit = limit,
                           .epoch = all ? imd::Reader::kAllEpochs : epoch});
  // With sizes, every key is also queried; the bytes that this reads are not known.
  const uint64_t expected_bytes =
      sizes ? 0 : bytes_of_epochs(reader.manifest(), all ? imd::Reader::kAllEpochs : epoch);
  const ReadingBar bar(reader, expected_bytes, ProgressBar::wanted_beside_output());
  std::unordered_set<std::string> seen;
  Status status;
  for (int64_t e = all ? 0 : epoch; status.ok() && e < (all ? epochs : epoch + 1) && !listing.full(); ++e) {
    status = list(reader, e, all ? &seen : nullptr, &listing);
  }
  if (status.ok()) status = listing.flush();
  if (!status.ok()) return fail(status);
  return finish_output(listing.listed() == 0 && !pattern.empty() ? kExitNotFound : kExitOk);
}

}  // namespace

void add_ls(CLI::App& app, Run* run) {
  auto command = std::make_shared<LsCommand>();
  OptionSet sub = add_command(
      app, "ls", "lists the keys, as ls lists files",
      {.description =
           "Prints one key per line, in storage order, as soon as it is found. With -l: the number "
           "of its values, their bytes, the first and last epoch that has one, and the key. The "
           "pattern is a shell pattern; it is compared with printed keys; put it in quotes. Needs "
           "memory for the keys of one partition, with --all for all keys.",
       .examples = {{"swale ls out/particles --limit 5 --u64", "some names"},
                    {"swale ls -l out/particles 'atom-*'", "how much the last epoch has of these"},
                    {"swale ls -l --all out/particles 'u64:1?' --u64", "and how much all epochs have"}},
       .exit_1 = "a pattern was given and no key matches it"});
  command->common.add_path(sub);
  sub.add_option("PATTERN", command->pattern, "only keys that match this: * ? [a-z]").type_name("PATTERN");
  sub.add_flag("-l,--long", command->sizes, "also show the number of values, their bytes and epochs");
  command->common.add_epoch(sub, "this epoch, numbered from 0; by default the last");
  sub.add_flag("-a,--all", command->all, "the keys of all epochs").excludes("--epoch");
  sub.add_option("-n,--limit", command->limit, "stop after N keys (0: all)").at_least(0).type_name("N");
  command->common.add_json(sub);
  command->common.add_notation(sub, /*with_raw=*/false);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
