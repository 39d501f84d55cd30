// What clients ask about names: server 0 has them, the others parts by their ids.
#include "iond/iond.h"
#include "iond/iond_part.h"

namespace swale::iond {

Status Iond::run_one(IondMethod method, const std::string& what, const IondRequest& request,
                     const std::function<void(const IondAnswer&)>& take) {
  std::vector<Part> parts(1);
  parts[0].server = kNamesServer;
  parts[0].request = request;
  parts[0].take = take;
  return run(method, what, &parts);
}

// Of a striped file, on the servers without names; none: it is not striped.
std::vector<Iond::Part> Iond::one_for_each_part(uint64_t id, const std::string& name) const {
  std::vector<Part> parts;
  for (uint32_t server = 1; id != 0 && server < servers(); ++server) {
    Part part;
    part.server = server;
    part.request = {.file = id, .name = name};
    parts.push_back(std::move(part));
  }
  return parts;
}

Status Iond::remove_parts(uint64_t id, const std::string& name) {
  std::vector<Part> parts = one_for_each_part(id, name);
  return run(IondMethod::kRemove, name + ": removing its parts", &parts);
}

Status Iond::remove(const std::string& name) {
  uint64_t id = 0;
  SWALE_RETURN_IF_ERROR(run_one(IondMethod::kRemove, name + ": remove", {.name = name},
                                [&](const IondAnswer& answer) { id = answer.id; }));
  return remove_parts(id, name);
}

Status Iond::rename(const std::string& from, const std::string& to) {
  uint64_t replaced = 0;
  SWALE_RETURN_IF_ERROR(run_one(IondMethod::kRename, from + ": rename to " + to, {.name = from, .other = to},
                                [&](const IondAnswer& answer) { replaced = answer.id; }));
  return remove_parts(replaced, to);
}

Status Iond::make_directory(const std::string& name, uint32_t mode) {
  return run_one(IondMethod::kMakeDirectory, name + ": making the directory", {.mode = mode, .name = name});
}

Status Iond::remove_directory(const std::string& name) {
  return run_one(IondMethod::kRemoveDirectory, name + ": removing the directory", {.name = name});
}

Status Iond::list(const std::string& name, const std::function<bool(const IondEntry&)>& take) {
  const std::string what = fmt::format("{}: listing it", name.empty() ? "the top directory" : name);
  std::string after;
  for (bool more = true; more;) {
    Result<std::vector<IondEntry>> entries = std::vector<IondEntry>();
    SWALE_RETURN_IF_ERROR(
        run_one(IondMethod::kList, what, {.length = kIondDataBytesMax, .name = name, .other = after},
                [&](const IondAnswer& answer) { entries = decode_iond_entries(answer.data, after); }));
    if (!entries.ok()) return entries.status().with_context(what);
    for (const IondEntry& entry : *entries)
      if (!take(entry)) return {};
    more = !entries->empty();
    if (more) after = entries->back().name;
  }
  return {};
}

Status Iond::set_attributes(const std::string& name, const AttributeChange& change) {
  IondRequest request{
      .mode = change.mode.value_or(0), .modified_ns = change.modified_ns.value_or(0), .name = name};
  request.flags = (change.mode ? kIondSetMode : 0u) | (change.modified_ns ? kIondSetModified : 0u);
  const std::string what = name + ": setting its attributes";
  uint64_t id = 0;
  SWALE_RETURN_IF_ERROR(
      run_one(IondMethod::kSetAttributes, what, request, [&](const IondAnswer& answer) { id = answer.id; }));
  if (!change.modified_ns) return {};
  std::vector<Part> parts = one_for_each_part(id, name);
  for (Part& part : parts) {
    part.request.flags = kIondSetModified;
    part.request.modified_ns = *change.modified_ns;
  }
  return run(IondMethod::kSetAttributes, what, &parts);
}

}  // namespace swale::iond
