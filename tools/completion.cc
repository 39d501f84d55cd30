#include "tools/completion.h"

#include <string_view>
#include <vector>

#include "base/status.h"
#include "tools/manual.h"

namespace swale::tools {
namespace {

using Completes = OptionText::Completes;

// Escapes text for single quotes: '\'' in bash and zsh, \' in fish.
std::string in_quotes(std::string_view text, bool fish = false) {
  std::string safe = "'";
  for (const char c : text) {
    if (c == '\'') {
      safe += fish ? "\\'" : "'\\''";
    } else if (c == '\\' && fish) {
      safe += "\\\\";
    } else {
      safe += c;
    }
  }
  return safe + "'";
}

std::vector<std::string> names_of(const OptionText& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.short_names) names.push_back("-" + name);
  for (const std::string& name : option.long_names) names.push_back("--" + name);
  return names;
}

const OptionText* first_positional(const std::vector<OptionText>& options) {
  return options.empty() || options.front().positional.empty() ? nullptr : &options.front();
}

std::string bash_values(const OptionText& option) {
  switch (option.completes) {
    case Completes::kChoices:
      return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\"))", fmt::join(option.choices, " "));
    case Completes::kDirectories:
      return "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$word\")";
    case Completes::kFiles:
      return "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$word\")";
    case Completes::kNothing:
      break;
  }
  return "COMPREPLY=()";
}

// One branch of `case $command`: options by their first letter, their values, the first positional argument.
std::string bash_command(const Command& command) {
  std::vector<std::string> words;
  std::string values;
  const std::vector<OptionText> options = options_of(command);
  for (const OptionText& option : options) {
    const std::vector<std::string> names = names_of(option);
    words.insert(words.end(), names.begin(), names.end());
    if (option.positional.empty() && !option.argument.empty()) {
      values += fmt::format("        {}) {}; return ;;\n", fmt::join(names, " | "), bash_values(option));
    }
  }
  const OptionText* const first = first_positional(options);
  return fmt::format(
      "    {})\n      case $before in\n{}      esac\n"
      "      case $word in\n        -*) COMPREPLY=($(compgen -W '{}' -- \"$word\")) ;;\n"
      "        *) {} ;;\n      esac ;;\n",
      command.get_name(), values, fmt::join(words, " "),
      first == nullptr ? "COMPREPLY=()" : bash_values(*first));
}

std::string bash(const CLI::App& app) {
  std::vector<std::string> names;
  std::string branches;
  for (const Command* command : commands_of(app)) {
    names.push_back(command->get_name());
    branches += bash_command(*command);
  }
  return fmt::format(
      "# bash completion for swale; source it, or install it as share/bash-completion/completions/swale\n"
      "_swale() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${{COMP_WORDS[i]}} in -*) ;; *) command=${{COMP_WORDS[i]}}; break ;; esac\n"
      "  done\n"
      "  case $command in\n"
      "    '') COMPREPLY=($(compgen -W '{} --help --version' -- \"$word\")) ;;\n"
      "{}  esac\n"
      "}}\n"
      "complete -F _swale swale\n",
      fmt::join(names, " "), branches);
}

// Escapes text for zsh's _arguments, where ':' and brackets have a meaning.
std::string zsh_text(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') safe += '\\';
    safe += c;
  }
  return safe;
}

std::string zsh_action(const OptionText& option) {
  switch (option.completes) {
    case Completes::kChoices:
      return fmt::format("({})", fmt::join(option.choices, " "));
    case Completes::kDirectories:
      return "_files -/";
    case Completes::kFiles:
      return "_files";
    case Completes::kNothing:
      break;
  }
  return " ";
}

std::string zsh_command(const Command& command) {
  std::string specs;
  for (const OptionText& option : options_of(command)) {
    if (!option.positional.empty()) {
      specs += fmt::format(" \\\n        {}",
                           in_quotes(fmt::format("{}:{}:{}", option.repeated ? "*" : "",
                                                 zsh_text(option.positional), zsh_action(option))));
      continue;
    }
    const std::vector<std::string> names = names_of(option);
    for (const std::string& name : names) {
      std::string spec = fmt::format("({}){}[{}]", fmt::join(names, " "), name, zsh_text(option.help));
      if (!option.argument.empty())
        spec += fmt::format(":{}:{}", zsh_text(option.argument), zsh_action(option));
      specs += fmt::format(" \\\n        {}", in_quotes(spec));
    }
  }
  return fmt::format("    {})\n      _arguments{} ;;\n", command.get_name(), specs);
}

std::string zsh(const CLI::App& app) {
  std::string names;
  std::string branches;
  for (const Command* command : commands_of(app)) {
    names += fmt::format("    {}\n", in_quotes(fmt::format("{}:{}", command->get_name(),
                                                           zsh_text(command->get_description()))));
    branches += zsh_command(*command);
  }
  return fmt::format(
      "#compdef swale\n"
      "# zsh completion for swale; install it as share/zsh/site-functions/_swale\n"
      "_swale() {{\n"
      "  local -a commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n{}  esac\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = _swale ]; then _swale \"$@\"; else compdef _swale swale; fi\n",
      names, branches);
}

std::string fish_values(const OptionText& option) {
  switch (option.completes) {
    case Completes::kChoices:
      return fmt::format(" -x -a {}", in_quotes(fmt::format("{}", fmt::join(option.choices, " ")), true));
    case Completes::kDirectories:
      return " -x -a '(__fish_complete_directories)'";
    case Completes::kFiles:
      return " -r -F";
    case Completes::kNothing:
      break;
  }
  return " -x";
}

std::string fish(const CLI::App& app) {
  std::string text =
      "# fish completion for swale; install it as share/fish/vendor_completions.d/swale.fish\n"
      "complete -c swale -f\n"
      "complete -c swale -n __fish_use_subcommand -l help -s h -d 'Print this help message and exit'\n"
      "complete -c swale -n __fish_use_subcommand -l version -d 'Display program version information and "
      "exit'\n";
  for (const Command* command : commands_of(app)) {
    const std::string& name = command->get_name();
    text += fmt::format("complete -c swale -n __fish_use_subcommand -a {} -d {}\n", name,
                        in_quotes(command->get_description(), true));
    const std::string line =
        fmt::format("complete -c swale -n {}", in_quotes("__fish_seen_subcommand_from " + name, true));
    for (const OptionText& option : options_of(*command)) {
      if (!option.positional.empty()) {
        if (option.completes != Completes::kNothing) text += line + fish_values(option) + "\n";
        continue;
      }
      text += line;
      for (const std::string& letter : option.short_names) text += " -s " + letter;
      for (const std::string& word : option.long_names) text += " -l " + word;
      if (!option.argument.empty()) text += fish_values(option);
      text += fmt::format(" -d {}\n", in_quotes(option.help, true));
    }
  }
  return text;
}

}  // namespace

std::string completion(const CLI::App& app, Shell shell) {
  return shell == Shell::kBash ? bash(app) : shell == Shell::kZsh ? zsh(app) : fish(app);
}

}  // namespace swale::tools
