#include <chrono>
#include <memory>
#include <thread>

#include "base/patience.h"
#include "imd/write/writer_lock.h"
#include "tools/command_line.h"
#include "tools/options.h"
#include "tools/tier_engine.h"

namespace swale::tools {
namespace {

struct UnlockCommand {
  Common common;
  bool force = false;
  bool dry_run = false;
  double watch_s = -1;  // negative: half of the lease

  int run() const;

 private:
  struct Finding {
    enum class State { kNone, kDead, kSilent, kAlive };
    State state = State::kNone;
    std::string why;
    io::FoundLock lock;
  };

  Result<Finding> look(io::Device& device, const std::string& path) const;
  Result<Finding> watch(io::Device& device, const std::string& path, Finding finding) const;
  Status remove(io::Device& device, const std::string& path, const Finding& finding) const;
  void report(const Finding& finding, bool removed) const;
};

constexpr const char* kStates[] = {"none", "dead", "silent", "alive"};

std::string text_of(const io::FoundLock& lock) {
  if (!lock.content.ok()) return lock.text();
  const io::LockContent& content = *lock.content;
  return fmt::format("held by {} since {}, job {}, lease {:g} s, renewed {} times", content.who(),
                     content.since, content.job, to_seconds(content.lease), content.counter);
}

Result<UnlockCommand::Finding> UnlockCommand::look(io::Device& device, const std::string& path) const {
  SWALE_RETURN_IF_ERROR(device.list(common.path).status());
  Result<io::FoundLock> found = io::read_lock(device, path);
  if (found.status().code() == Code::kNotFound) return Finding();
  SWALE_RETURN_IF_ERROR(found.status());
  Finding finding;
  finding.lock = *std::move(found);
  if (!common.json) print_line(text_of(finding.lock));
  const io::LockVerdict verdict = io::judge_lock(finding.lock);
  finding.why = verdict.why;
  if (verdict.kind == io::LockVerdict::Kind::kDead) {
    finding.state = Finding::State::kDead;
    return finding;
  }
  finding.state = Finding::State::kAlive;
  if (verdict.kind == io::LockVerdict::Kind::kAlive) {
    if (finding.why.empty()) finding.why = "may be the lock of another version of Swale";
    return finding;
  }
  return watch(device, path, std::move(finding));
}

// For a process of another machine: watches whether it renews its lock.
Result<UnlockCommand::Finding> UnlockCommand::watch(io::Device& device, const std::string& path,
                                                    Finding finding) const {
  const io::LockContent& before = *finding.lock.content;
  const Nanos time = watch_s < 0 ? before.lease / 2 : seconds(watch_s);
  if (!common.json) {
    print(fmt::format("watching for {:g} s whether the holder renews it...\n", to_seconds(time)));
    flush_output();
  }
  Patience patience(time, system_clock().now());
  while (!patience.over(system_clock().now())) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(patience.step()));
    Result<io::FoundLock> now = io::read_lock(device, path);
    if (now.status().code() == Code::kNotFound) return Finding();
    SWALE_RETURN_IF_ERROR(now.status());
    if (now->bytes == finding.lock.bytes) continue;
    finding.lock = *std::move(now);
    finding.why = "renews its lock";
    return finding;
  }
  finding.state = Finding::State::kSilent;
  finding.why = fmt::format("has not renewed its lock for {:g} s", to_seconds(time));
  return finding;
}

// As the next writer would: takes the lock over, unless another process does so at the same time, and
// releases it.
Status UnlockCommand::remove(io::Device& device, const std::string& path, const Finding& finding) const {
  io::LockRequest request;
  request.job = "swale unlock";
  request.renewal = io::LockRequest::Renewal::kByCaller;
  request.lease.wait = 0;
  request.force = finding.lock.token();
  SWALE_ASSIGN_OR_RETURN(io::LockFile lock, io::LockFile::acquire(device, path, request));
  lock.release();
  return {};
}

void UnlockCommand::report(const Finding& finding, bool removed) const {
  const bool held = finding.state != Finding::State::kNone;
  if (common.json) {
    Json json = {{"path", common.path},
                 {"state", kStates[static_cast<int>(finding.state)]},
                 {"why", finding.why},
                 {"removed", removed}};
    if (held && finding.lock.content.ok()) {
      const io::LockContent& content = *finding.lock.content;
      json.update({{"host", content.holder.host},
                   {"pid", content.holder.pid},
                   {"allocation", content.allocation},
                   {"job", content.job},
                   {"since", content.since},
                   {"lease_s", to_seconds(content.lease)},
                   {"renewed", content.counter}});
    }
    print_json(json);
    return;
  }
  if (!held) return print_line(fmt::format("{}: nobody holds it", common.path));
  print_line(fmt::format("{}: {}", kStates[static_cast<int>(finding.state)], finding.why));
  if (removed) {
    print("removed\n");
  } else if (finding.state == Finding::State::kAlive && !force) {
    print("not removed: end the job that writes here, or give --force if no job does\n");
  } else {
    print("would be removed\n");
  }
}

int UnlockCommand::run() const {
  io::PosixDevice device({}, common.path);
  std::string path = imd::lock_path(common.path);
  if (const Result<bool> there = device.exists(path); there.ok() && !*there) {
    const std::string of_tier = tier_lock_path(device, common.path);
    if (!of_tier.empty()) path = of_tier;
  }
  const Result<Finding> finding = look(device, path);
  if (!finding.ok()) return fail(finding.status());
  const bool held = finding->state != Finding::State::kNone;
  const bool leave = finding->state == Finding::State::kAlive && !force;
  bool removed = false;
  if (held && !leave && !dry_run) {
    const Status status = remove(device, path, *finding);
    if (!status.ok()) {
      static_cast<void>(fail(status));
      return status.code() == Code::kBusy ? kExitNotFound : kExitFailure;
    }
    removed = true;
  }
  report(*finding, removed);
  return finish_output(leave ? kExitNotFound : kExitOk);
}

}  // namespace

void add_unlock(CLI::App& app, Run* run) {
  auto command = std::make_shared<UnlockCommand>();
  OptionSet sub = add_command(
      app, "unlock", "shows who writes to a directory, and removes the lock of a dead writer",
      {
          .description =
              "A job that writes holds DIR/swale.lock and renews it while it lives. The next job takes over "
              "the lock of a dead one by itself, after a minute at most: use this command to see the holder, "
              "or if you do not want to wait. The command looks for a process of this machine; a process of "
              "another machine is alive if it renews the lock while the command watches. The command leaves "
              "a lock that looks alive, unless you give --force. If its writer is alive after all, the "
              "writer "
              "notices before its next commit that the lock is gone, and fails.\n\n"
              "The SSD directory and the backing directory of a tiered write buffer have such a lock each "
              "while a mount, an I/O server or `swale tier` uses them.",
          .examples = {{"swale unlock out/particles --dry-run", "the job that writes there, if any"},
                       {"swale unlock out/particles", "removes the lock of a dead writer"},
                       {"swale unlock out/particles --json | jq .state", "none, dead, silent or alive"}},
          .exit_1 = "the lock looks alive and was left",
      });
  command->common.add_path(sub);
  sub.add_flag("-f,--force", command->force, "remove the lock although it looks alive");
  sub.add_flag("-n,--dry-run", command->dry_run, "print what would be done, and do nothing");
  sub.add_option("-w,--watch", command->watch_s,
                 "seconds to watch a lock of another machine; by default half of its lease")
      .between(0.0, 3600.0)
      .type_name("SECONDS");
  command->common.add_json(sub);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
