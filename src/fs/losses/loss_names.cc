#include "fs/losses/loss_names.h"

#include <utility>

namespace swale::fs {

LossNames::LossNames(std::span<const NodeSurvey> surveys, std::span<const LeftDetails> details,
                     const LossPlan& plan, bool asks_partition)
    : servers_(plan.nodes), absent_(plan.absent), asks_partition_(asks_partition) {
  for (size_t i = 0; i < surveys.size(); ++i) {
    const size_t renames = details[i].renames.size();
    for (size_t at = renames; at < surveys[i].names.size(); ++at) {
      const NodeSurvey::Name& name = surveys[i].names[at];
      directories_[name.directory].insert_or_assign(name.name, name.entry);
    }
  }
  std::map<meta::Transaction, const LeftDetails::Rename*> renames;
  for (const LeftDetails& each : details)
    for (const LeftDetails::Rename& rename : each.renames) renames.emplace(rename.transaction, &rename);
  // A target's server that has heard of a rename has let its lock go.
  for (const LeftDetails& each : details)
    for (const LeftDetails::Lock& lock : each.locks) {
      if (absent_.contains(lock.transaction.server))
        changing_.emplace(Key(lock.key.directory, lock.key.name), lock.transaction.server);
      const auto rename = renames.find(lock.transaction);
      if (rename == renames.end() || rename->second->target != lock.key) continue;
      directories_[lock.key.directory].insert_or_assign(lock.key.name, rename->second->moved);
    }
}

LossNames::Found LossNames::find(const meta::FileId& directory, const std::string& name) const {
  if (const auto changing = changing_.find(Key(directory, name)); changing != changing_.end())
    return {Found::What::kUnknown, {}, changing->second};
  const NodeId server = meta::server_of(meta::EntryKey(directory, name), servers_);
  if (asks_partition_ && absent_.contains(server)) return {Found::What::kUnknown, {}, server};
  const Entries& entries = in(directory);
  const auto at = entries.find(name);
  if (at == entries.end()) return {};
  return {Found::What::kEntry, at->second, 0};
}

const LossNames::Entries& LossNames::in(const meta::FileId& directory) const {
  static const Entries none;
  const auto at = directories_.find(directory);
  return at == directories_.end() ? none : at->second;
}

}  // namespace swale::fs
