#include <cstring>
#include <memory>

#include "swale/swale.h"
#include "tools/command_line.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

struct MkdirCommand {
  std::string path;
  bool massive = false;
  bool json = false;
  std::string options;

  int run() const;
};

// This process is a job of one rank, also below a launcher: it does not read the launcher's variables.
int MkdirCommand::run() const {
  if (!massive) return fail(invalid_argument("{}: give --massive: mkdir(1) makes plain directories", path));
  swale_comm alone = {};
  alone.struct_bytes = sizeof alone;
  alone.size = 1;
  alone.allgather = [](void*, const void* send, void* receive, size_t bytes) {
    std::memcpy(receive, send, bytes);
    return 0;
  };
  swale_job* job = nullptr;
  bool made = swale_job_open(&alone, nullptr, &job) == SWALE_OK;
  made = made && swale_dir_make(job, path.c_str(), options.c_str()) == SWALE_OK;
  if (!made) complain("{}", swale_last_error());
  swale_job_close(job);
  if (!made) return kExitFailure;
  if (json)
    print_json({{"path", path}, {"massive", true}});
  else
    print_line(fmt::format("{}: made; its epochs are to come", path));
  return finish_output(kExitOk);
}

}  // namespace

void add_mkdir(CLI::App& app, Run* run) {
  auto command = std::make_shared<MkdirCommand>();
  OptionSet sub = add_command(
      app, "mkdir", "makes an empty massive directory",
      {
          .description =
              "Makes a massive directory in which no job has written, and the directories above it that do "
              "not exist. Programs that run with libswale_preload.so (`swale run --preload`) write into it "
              "by path: opendir in every rank begins an epoch, fopen, fwrite and fclose of a name append "
              "a value, closedir commits the epoch.",
          .examples = {{"swale mkdir --massive out/orbits", "for a program that uses fopen"},
                       {"swale mkdir --massive out/tracks --options imd.key=text", "names are text"}},
      });
  sub.add_option("DIR", command->path, "the directory to make").required();
  sub.add_flag("--massive", command->massive, "make a massive directory; required");
  sub.add_option("--options", command->options,
                 "options imd.schema and so on, as for swale_dir_open: see swale-options(7)")
      .type_name("OPTIONS");
  sub.add_flag("--json", command->json, "print JSON");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
