#include "arguments.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace impact {

Arguments::Arguments(const std::string& description) : app_(std::make_unique<CLI::App>(description)) {}
Arguments::~Arguments() = default;

void Arguments::directory(std::string& value, const std::string& help) {
  app_->add_option("OUT", value, help)->required()->check(CLI::ExistingDirectory);
}

void Arguments::file(const std::string& name, std::string& value, const std::string& help) {
  app_->add_option(name, value, help)->required()->check(CLI::ExistingFile);
}

void Arguments::text(const std::string& name, std::string& value, const std::string& help) {
  app_->add_option(name, value, help)->capture_default_str();
}

void Arguments::number(const std::string& name, double& value, const std::string& help) {
  app_->add_option(name, value, help)->capture_default_str();
}

void Arguments::count(const std::string& name, int64_t& value, int64_t least, int64_t most,
                      const std::string& help) {
  app_->add_option(name, value, help)->check(CLI::Range(least, most))->capture_default_str();
}

void Arguments::pairs(const std::string& name, std::vector<std::string>& value, const std::string& help) {
  app_->add_option(name, value, help)->type_size(2)->allow_extra_args(false);
}

void Arguments::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

void Arguments::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& why) {
    std::exit(app_->exit(why));
  }
}

}  // namespace impact
