#include "stage/status_file.h"

#include <algorithm>

#include "base/json_writer.h"
#include "io/fresh_file.h"

namespace swale::stage {

const char* state_name(StageState state) {
  constexpr const char* kNames[] = {"running", "done", "failed", "stopped"};
  return kNames[static_cast<int>(state)];
}

std::string status_json(const StageOptions& options, const ProcessIdentity& process,
                        const StageCounts& counts, const StatusText& text) {
  const bool tree = options.manifest.empty();
  JsonWriter json;
  json.object()
      .member("swale_stage", 1)
      .member("direction", options.direction == Direction::kIn ? "in" : "out")
      .member("state", state_name(text.state))
      .member(tree ? "from" : "manifest", tree ? options.from : options.manifest)
      .member("to", options.to);
  const auto count = [&](const char* name, const std::atomic<uint64_t>& value) {
    json.member(name, value.load());
  };
  json.line();
  count("files", counts.files);
  count("files_done", counts.files_done);
  count("files_failed", counts.files_failed);
  count("files_before", counts.files_before);
  json.line();
  count("bytes", counts.bytes);
  count("bytes_done", counts.bytes_done);
  count("bytes_before", counts.bytes_before);
  count("bytes_copied", counts.bytes_copied);
  json.member("bytes_per_second",
              text.seconds > 0 ? static_cast<double>(counts.bytes_copied.load()) / text.seconds : 0.0)
      .line()
      .member("seconds", text.seconds)
      .member("since", text.since)
      .member("durable", options.direction == Direction::kOut)
      .member("read_back", options.read_back == ReadBack::kYes)
      .line()
      .member("host", process.host)
      .member("pid", process.pid)
      .member("boot", process.boot)
      .member("pid_namespace", process.pid_namespace)
      .member("start_time", process.start_time)
      .member("rank", options.rank)
      .member("ranks", options.ranks)
      .line()
      .name("failures")
      .array();
  for (size_t i = 0; i < std::min(text.failures.size(), kFailuresTold); ++i)
    json.line().object().member("path", text.failures[i].path).member("what", text.failures[i].what).end();
  json.end().line().name("remarks").array();
  for (const std::string& remark : text.remarks) json.line().value(remark);
  json.end().end();
  return json.text() + "\n";
}

Status write_status(io::Device& device, const std::string& path, const std::string& json, StatusKind kind) {
  if (kind == StatusKind::kLast) return io::replace_file(device, path, json);
  const std::string draft = path + ".draft";
  {
    SWALE_ASSIGN_OR_RETURN(const auto file, io::create_fresh(device, draft));
    SWALE_RETURN_IF_ERROR(file->pwrite(0, json));
  }
  return device.rename(draft, path);
}

}  // namespace swale::stage
