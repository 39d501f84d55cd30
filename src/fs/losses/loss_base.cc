#include "fs/losses/loss_base.h"

#include <utility>

#include "fs/node/backing.h"
#include "fs/node/drain_mark.h"

namespace swale::fs {

Result<LossBase> find_base(io::Device& backing, const std::string& path, const std::string& job_folder,
                           const FileLoss& loss) {
  LossBase base;
  Stamp found;
  if (!path.empty()) {
    auto there = backing.open(path, io::OpenMode::kRead);
    if (!there.ok() && there.status().code() != Code::kNotFound) return there.status();
    if (there.ok()) {
      base.file = *std::move(there);
      SWALE_ASSIGN_OR_RETURN(found, stamp_of(*base.file));
    }
  }
  const SeenBacking now{found.inode, found.size, found.modified_ns};
  bool is_ours = now == loss.backing || (now.inode != 0 && now == loss.ours);
  const std::string mark_path = job_folder + "/" + marked_name(kMarkPrefix, loss.file);
  if (!is_ours && now.inode != 0) {
    const auto text = io::read_file(backing, mark_path, 64 * kKiB);
    if (text.ok()) {
      SWALE_ASSIGN_OR_RETURN(const DrainMark mark, decode_mark(*text, mark_path));
      is_ours = mark.how == DrainMark::How::kInPlace && mark.stamp.inode == now.inode;
    } else if (text.status().code() != Code::kNotFound) {
      return text.status();
    }
  }
  base.changed = !is_ours;
  return base;
}

}  // namespace swale::fs
