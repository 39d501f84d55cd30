// Arguments: the command lines of the demo's programs. CLI11 parses them; it stands behind this because a
// compiler takes six seconds for its header, in each file that sees it.
#ifndef EXAMPLES_LAMMPS_ARGUMENTS_H_
#define EXAMPLES_LAMMPS_ARGUMENTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace impact {

// Each value has its default before, and is kept until parse().
class Arguments {
 public:
  explicit Arguments(const std::string& description);
  ~Arguments();

  // The one argument without a name: a directory that is there.
  void directory(std::string& value, const std::string& help);
  void file(const std::string& name, std::string& value, const std::string& help);  // required
  void text(const std::string& name, std::string& value, const std::string& help);
  void number(const std::string& name, double& value, const std::string& help);
  void count(const std::string& name, int64_t& value, int64_t least, int64_t most, const std::string& help);
  void pairs(const std::string& name, std::vector<std::string>& value,
             const std::string& help);  // repeatable
  void flag(const std::string& name, bool& value, const std::string& help);
  // Ends the process after --help, and with a message where the command line is wrong.
  void parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace impact

#endif  // EXAMPLES_LAMMPS_ARGUMENTS_H_
