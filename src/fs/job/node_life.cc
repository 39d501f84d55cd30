#include "fs/job/node_life.h"

#include "base/entropy.h"
#include "fs/log/log_format.h"

namespace swale::fs {
namespace {

constexpr char kName[] = "life";
constexpr size_t kLifeBytes = 16;

// Empty: there is none. One that is torn is none that the other file has.
Result<std::string> read_life(io::Device& device, const std::string& path) {
  auto text = io::read_file(device, path, kLifeBytes);
  if (text.status().code() == Code::kNotFound) return std::string();
  return text;
}

}  // namespace

Result<std::unique_ptr<NodeLife>> NodeLife::find(io::Device& memory, const std::string& memory_folder,
                                                 io::Device& storage, const std::string& state_folder) {
  std::unique_ptr<NodeLife> life(new NodeLife(storage, state_folder + "/" + kName));
  SWALE_RETURN_IF_ERROR(io::make_directories(memory, memory_folder));
  SWALE_ASSIGN_OR_RETURN(const auto folder, memory.anchored_private(memory_folder));
  const std::string in_memory = memory_folder + "/" + kName;
  SWALE_ASSIGN_OR_RETURN(life->known_, read_life(storage, life->path_));
  SWALE_ASSIGN_OR_RETURN(life->life_, read_life(*folder, in_memory));
  if (life->life_.size() == kLifeBytes) return life;
  life->life_ = fmt::format("{:016x}", random_number());
  SWALE_ASSIGN_OR_RETURN(const bool has_logs, folder->exists(memory_folder + "/" + kNodeName));
  if (has_logs) SWALE_RETURN_IF_ERROR(life->told());
  SWALE_RETURN_IF_ERROR(io::replace_file(*folder, in_memory, life->life_));
  return life;
}

Status NodeLife::told() {
  if (known_ == life_) return {};
  SWALE_RETURN_IF_ERROR(io::replace_file(storage_, path_, life_));
  known_ = life_;
  return {};
}

}  // namespace swale::fs
