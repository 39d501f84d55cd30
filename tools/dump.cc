#include "tools/dump.h"

#include <memory>

#include "tools/command_line.h"
#include "tools/engine.h"

namespace swale::tools {
namespace {

struct DumpCommand {
  Common common;
  DumpOptions options;

  int run() const;
};

int DumpCommand::run() const {
  DumpOptions with = options;
  with.json = common.json;
  with.notation = common.notation();
  const Result<io::PosixOptions> storage = Common::storage();
  if (!storage.ok()) return fail(storage.status());
  io::PosixDevice device(*storage, common.path);
  const auto engine = engine_of(device, common.path);
  if (!engine.ok()) return fail(engine.status());
  DumpOutput out(with);
  const Status status = (*engine)->dump(device, common.path, &out);
  if (!status.ok()) return fail(status);
  if (!out.failure().ok()) return fail(out.failure());
  return finish_output(out.damaged() ? kExitNotFound : kExitOk);
}

}  // namespace

void DumpOutput::begin_file(const std::string& path, Part part) {
  path_ = path;
  part_ = std::move(part);
  lines_ = 0;
  if (wants_progress_) bar_.emplace();
  if (!options_.json) print_line(part_.words.empty() ? path : fmt::format("{}: {}", path, part_.words));
}

void DumpOutput::progress(uint64_t offset, uint64_t file_bytes) {
  if (bar_)
    bar_->update(offset, file_bytes, fmt::format("MiB, {}", path_.substr(path_.find_last_of('/') + 1)), kMiB);
}

void DumpOutput::end_file() {
  bar_.reset();
  if (lines_ <= options_.lines_max) return;
  const uint64_t left_out = lines_ - options_.lines_max;
  if (options_.json) {
    Json whole = {{"file", path_}};
    whole.update(part_.members);
    whole.update({{"what", "left-out"}, {"lines", left_out}});
    print_json(whole);
  } else {
    print(fmt::format("  ({} more lines)\n", left_out));
  }
}

void DumpOutput::line(const Json& thing) {
  if (++lines_ > options_.lines_max) return;
  if (options_.json) {
    Json whole = {{"file", path_}};
    whole.update(part_.members);
    whole.update(thing);
    print_json(whole);
    return;
  }
  const auto offset = thing.find("offset");
  std::string text = fmt::format("  {:>12}  {:<11}", offset == thing.end() ? "" : offset->dump(),
                                 thing.at("what").get<std::string>());
  for (const auto& [name, value] : thing.items()) {
    if (name == "what" || name == "offset") continue;
    text += fmt::format(" {}={}", name,
                        value.is_string() ? value.get<std::string>()
                                          : value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  print_line(text);
}

void DumpOutput::damage(uint64_t offset, const Status& cause) {
  if (is_own_limit(cause)) {
    if (failure_.ok()) failure_ = cause;
    return;
  }
  damaged_ = true;
  line({{"what", "DAMAGE"}, {"offset", offset}, {"cause", std::string(cause.message())}});
}

void add_dump(CLI::App& app, Run* run) {
  auto command = std::make_shared<DumpCommand>();
  OptionSet sub = add_command(
      app, "dump", "shows the content of a file, place by place, for people",
      {
          .description =
              "Each line has the offset in the file, the thing that is there, and its fields, as in "
              "docs/formats of the sources. The output includes things that belong to no committed epoch. "
              "Damage is shown at its place, with its cause, and does not end the walk.\n\n"
              "Of the SSD directory of a tiered write buffer: the records of the log and of the queues. Of "
              "its backing directory: what is lost.",
          .examples = {{"swale dump out/particles --limit 20", "the first things of every file"},
                       {"swale dump out/particles/p000/part-000000.j0001.data -v", "every record of a log"},
                       {"swale dump out/particles --json | jq 'select(.what == \"run\")'", "all runs"}},
          .exit_1 = "something is damaged",
      });
  sub.add_option(
         "PATH", command->common.path,
         "a massive directory, or a file of one: swale.json, swale.lock, of clusters/N and jobs/N "
         "manifest.json, epochs, extrema, attributes.jsonl and stats.jsonl, part-N.jN.data, .index, .values, "
         ".pages or .source")
      .required()
      .type_name("FILE");
  sub.add_flag("-v,--records", command->options.records, "also show the records of data logs");
  sub.add_option("-n,--limit", command->options.lines_max, "at most N lines for each file")
      .at_least(0)
      .type_name("N");
  command->common.add_json(sub);
  command->common.add_notation(sub, /*with_raw=*/false);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
