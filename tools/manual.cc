#include "tools/manual.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "tools/wrap.h"

namespace swale::tools {
namespace {

constexpr size_t kHelpColumns = 100;

std::string footer_of(const Manual& manual) {
  std::string text = wrap(manual.description, kHelpColumns);
  if (!manual.exit_1.empty()) {
    text += "\n" + wrap(fmt::format("Exit status 1: {}.", manual.exit_1), kHelpColumns);
  }
  text += "\nExamples:\n";
  for (const Example& example : manual.examples) {
    text += fmt::format("  {}\n", example.command);
    if (!example.what.empty()) text += wrap(example.what, kHelpColumns, "      ");
  }
  if (!text.empty()) text.pop_back();
  return text;
}

bool is_choice_list(std::string_view type) { return type.starts_with('{') && type.ends_with('}'); }

std::vector<std::string> split_choices(std::string_view list) {
  std::vector<std::string> choices;
  list = list.substr(1, list.size() - 2);
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    choices.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return choices;
}

OptionText text_of(const CLI::Option& option) {
  OptionText text;
  text.short_names = option.get_snames();
  text.long_names = option.get_lnames();
  if (option.get_positional()) text.positional = option.get_name(true, false);
  text.help = option.get_description();
  text.required = option.get_required();
  text.repeated = option.get_items_expected_max() > 1;
  if (option.get_type_size() == 0) return text;
  // "N", "DIR", "N:POSITIVE", "FORMAT:{csv,json}"
  const std::string type = option.get_type_name();
  text.argument = type.substr(0, type.find(':'));
  if (const size_t list = type.find('{'); list != std::string::npos && is_choice_list(type.substr(list))) {
    text.choices = split_choices(type.substr(list));
    text.completes = OptionText::Completes::kChoices;
  } else if (text.argument == "DIR") {
    text.completes = OptionText::Completes::kDirectories;
  } else if (text.argument == "FILE") {
    text.completes = OptionText::Completes::kFiles;
  }
  return text;
}

void collect(const CLI::App& app, bool positional, std::vector<OptionText>* texts) {
  const bool group_of_options = app.get_name().empty() && app.get_parent() != nullptr;
  for (const CLI::Option* option : app.get_options()) {
    if (group_of_options && option == app.get_help_ptr()) continue;  // its command has --help, too
    if (option->get_positional() == positional && !option->get_group().empty())
      texts->push_back(text_of(*option));
  }
  for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (group->get_name().empty()) collect(*group, positional, texts);
  }
}

}  // namespace

Command::Command(const std::string& name, const std::string& summary, Manual manual)
    : CLI::App(summary, name), manual_(std::move(manual)) {
  footer(footer_of(manual_));
}

std::vector<const Command*> commands_of(const CLI::App& app) {
  std::vector<const Command*> commands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (const auto* command = dynamic_cast<const Command*>(sub)) commands.push_back(command);
  }
  return commands;
}

std::vector<OptionText> options_of(const CLI::App& command) {
  std::vector<OptionText> texts;
  collect(command, /*positional=*/true, &texts);
  collect(command, /*positional=*/false, &texts);
  return texts;
}

}  // namespace swale::tools
