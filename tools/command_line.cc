#include "tools/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <system_error>
#include <utility>

#include "tools/manual.h"

namespace swale::tools {
namespace {

constexpr std::string_view kRunPrograms[] = {"run", "iond-mount"};  // commands
constexpr char kFilled[] = "filled";                                // the name of a check

std::vector<std::string>& program_arguments() {
  static std::vector<std::string> arguments;
  return arguments;
}

std::string complain_if_empty(const std::string& text) {
  return text.empty() ? "is empty; does the shell know the variable?" : "";
}

}  // namespace

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::may_be_empty() {
  option_->get_validator(kFilled)->active(false);
  return *this;
}

Option Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option Option::one_of(const std::vector<std::string>& choices) {
  option_->check(CLI::IsMember(choices));
  return *this;
}

Option Option::between(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::between_integers(int64_t least, int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::at_least(int64_t least) {
  const auto check = [least](const std::string& text) {
    int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, number);
    // The conversion reports text that is not a number, or too large a number.
    const bool tells = failure == std::errc() && stop == end;
    return tells && number < least ? fmt::format("expected at least {}, found {}", least, text)
                                   : std::string();
  };
  option_->check(CLI::Validator(check, ""));
  return *this;
}

Option Option::size_between(uint64_t least, uint64_t most) {
  option_->transform(CLI::AsSizeValue(false))->check(CLI::Range(least, most));
  return *this;
}

Option Option::excludes(const std::string& other) {
  option_->excludes(other);
  return *this;
}

size_t Option::count() const { return option_->count(); }

template <OptionValue T>
Option OptionSet::add_option(const std::string& names, T& value, const std::string& help) {
  return Option(app_->add_option(names, value, help)->check(CLI::Validator(complain_if_empty, "", kFilled)));
}
template Option OptionSet::add_option(const std::string&, std::string&, const std::string&);
template Option OptionSet::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option OptionSet::add_option(const std::string&, double&, const std::string&);
template Option OptionSet::add_option(const std::string&, uint32_t&, const std::string&);
template Option OptionSet::add_option(const std::string&, uint64_t&, const std::string&);
template Option OptionSet::add_option(const std::string&, std::optional<int64_t>&, const std::string&);
template Option OptionSet::add_option(const std::string&, std::optional<uint64_t>&, const std::string&);

Option OptionSet::add_flag(const std::string& names, bool& value, const std::string& help) {
  return Option(app_->add_flag(names, value, help));
}

void OptionSet::add_program(const std::string& name, std::string& program, const std::string& help,
                            bool required) {
  Option added = add_option(name, program, help);
  if (required) added.required();
  added.type_name("PROGRAM");
}

std::vector<std::string> program_words(const std::string& program) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), program_arguments().begin(), program_arguments().end());
  return words;
}

void take_program_arguments(std::vector<std::string>* words) {
  if (words->empty() || std::ranges::find(kRunPrograms, words->front()) == std::end(kRunPrograms)) return;
  const auto mark = std::find(words->begin(), words->end(), "--");
  if (words->end() - mark < 3) return;
  program_arguments().assign(mark + 2, words->end());
  words->erase(mark + 2, words->end());
}

OptionSet OptionSet::add_choice(const std::string& name, const std::string& help) {
  CLI::App* const group = app_->add_option_group(name, help);
  group->require_option(0, 1);
  return OptionSet(group);
}

void OptionSet::callback(std::function<void()> action) { app_->callback(std::move(action)); }

OptionSet add_command(CLI::App& app, const std::string& name, const std::string& summary, Manual manual) {
  auto command = std::make_shared<Command>(name, summary, std::move(manual));
  app.add_subcommand(command);
  return OptionSet(command.get());
}

}  // namespace swale::tools
