#include "tools/completion.h"

#include <memory>
#include <string>

#include "tools/command_line.h"
#include "tools/options.h"

namespace swale::tools {

void add_completion(CLI::App& app, Run* run) {
  auto shell = std::make_shared<std::string>();
  OptionSet sub = add_command(
      app, "completion", "prints the completion script of a shell",
      {.description =
           "If swale is installed for all users, its completion scripts are installed, too, and you need do "
           "nothing. Otherwise source the output of this command.",
       .examples = {{"source <(swale completion bash)", "in ~/.bashrc"},
                    {"swale completion zsh > _swale", "into a folder of $fpath"},
                    {"swale completion fish > swale.fish", "into ~/.config/fish/completions"}}});
  sub.add_option("SHELL", *shell, "bash, zsh or fish")
      .required()
      .one_of({"bash", "zsh", "fish"})
      .type_name("SHELL");
  sub.callback([&app, shell, run] {
    *run = [&app, shell] {
      print(completion(app, *shell == "bash" ? Shell::kBash : *shell == "zsh" ? Shell::kZsh : Shell::kFish));
      return finish_output(kExitOk);
    };
  });
}

}  // namespace swale::tools
