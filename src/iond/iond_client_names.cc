// What clients ask about names and attributes: server 0 has them, the others parts by their ids.
#include <algorithm>
#include <cstdint>

#include "iond/iond.h"
#include "iond/iond_part.h"

namespace swale::iond {
namespace {

FileAttributes attributes_in(const IondAnswer& answer) {
  FileAttributes seen;
  const uint32_t kind = answer.mode & kIondKindBits;
  seen.key.inode = answer.inode;
  seen.kind = kind == kIondDirectoryBit  ? FileKind::kDirectory
              : kind == kIondSymlinkBits ? FileKind::kSymlink
                                         : FileKind::kFile;
  seen.size = answer.size;
  seen.mode = answer.mode & ~kIondKindBits;
  seen.links = answer.links;
  seen.created_ns = answer.created_ns;
  seen.modified_ns = answer.modified_ns;
  seen.changed_ns = answer.changed_ns;
  return seen;
}

}  // namespace

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

Status Iond::rename(const std::string& from, const std::string& to, uint32_t flags) {
  uint64_t replaced = 0;
  SWALE_RETURN_IF_ERROR(run_one(IondMethod::kRename, from + ": rename to " + to,
                                {.flags = flags, .name = from, .other = to},
                                [&](const IondAnswer& answer) { replaced = answer.id; }));
  return remove_parts(replaced, to);
}

Status Iond::link(const IondTarget& file, const std::string& name) {
  IondRequest request = request_of(file);
  request.file = 0;
  request.other = name;
  return run_one(IondMethod::kLink, file.name + ": a second name " + name, request);
}

Status Iond::make_symlink(const std::string& target, const std::string& name) {
  return run_one(IondMethod::kMakeSymlink, name + ": making the link", {.name = name, .other = target});
}

Result<std::string> Iond::read_symlink(const std::string& name) {
  std::string target;
  SWALE_RETURN_IF_ERROR(run_one(IondMethod::kReadSymlink, name + ": reading the link", {.name = name},
                                [&](const IondAnswer& answer) { target = answer.data; }));
  return target;
}

Status Iond::make_directory(const std::string& name, uint32_t mode, uint32_t flags) {
  return run_one(IondMethod::kMakeDirectory, name + ": making the directory",
                 {.flags = flags, .mode = mode, .name = name});
}

Status Iond::remove_directory(const std::string& name) {
  return run_one(IondMethod::kRemoveDirectory, name + ": removing the directory", {.name = name});
}

Status Iond::sync_directory(const std::string& name) {
  return run_one(IondMethod::kSyncDirectory, name + ": sync of the directory", {.name = name});
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

IondRequest Iond::request_of(const IondTarget& target) {
  IondRequest request;
  if (target.open != nullptr) request.file = target.open->handles[kNamesServer];
  request.inode = target.inode;
  request.name = target.name;
  return request;
}

Status Iond::set_attributes(const IondTarget& of, const AttributeChange& change) {
  IondRequest request = request_of(of);
  request.mode = change.mode.value_or(0);
  request.modified_ns = change.modified_ns.value_or(0);
  request.flags = (change.mode ? kIondSetMode : 0u) | (change.modified_ns ? kIondSetModified : 0u);
  const std::string what = of.name + ": setting its attributes";
  uint64_t id = 0;
  SWALE_RETURN_IF_ERROR(
      run_one(IondMethod::kSetAttributes, what, request, [&](const IondAnswer& answer) { id = answer.id; }));
  if (!change.modified_ns) return {};
  std::vector<Part> parts = one_for_each_part(id, of.name);
  for (Part& part : parts) {
    part.request.flags = kIondSetModified;
    part.request.modified_ns = *change.modified_ns;
  }
  return run(IondMethod::kSetAttributes, what, &parts);
}

Result<FileAttributes> Iond::attributes(const IondFile& file) {
  FileAttributes all;
  uint64_t size = 0;
  int64_t modified_ns = 0;
  auto parts = one_for_each_server(file);
  for (Part& part : parts)
    part.take = [&](const IondAnswer& answer) {
      if (part.server == kNamesServer) all = attributes_in(answer);  // its part is the file that was made
      size = std::max(size, file.striping.end_of(part.server, answer.size));
      modified_ns = std::max(modified_ns, answer.modified_ns);
    };
  SWALE_RETURN_IF_ERROR(run(IondMethod::kAttributes, file.name + ": its attributes", &parts));
  all.size = size;
  all.modified_ns = modified_ns;
  return all;
}

Result<FileAttributes> Iond::stat(const std::string& name) {
  FileAttributes seen;
  uint64_t id = 0;
  Striping striping = {options_.stripe_bytes, servers(), 0};
  const std::string what = name + ": its attributes";
  SWALE_RETURN_IF_ERROR(
      run_one(IondMethod::kLook, what, {.striping = striping, .name = name}, [&](const IondAnswer& answer) {
        seen = attributes_in(answer);
        id = answer.id;
        striping.first = answer.first;
      }));
  if (seen.kind != FileKind::kFile || id == 0) return seen;
  SWALE_RETURN_IF_ERROR(striping.check());
  seen.size = striping.end_of(kNamesServer, seen.size);
  std::vector<Part> parts = one_for_each_part(id, name);
  for (Part& part : parts)
    part.take = [&](const IondAnswer& answer) {
      seen.size = std::max(seen.size, striping.end_of(part.server, answer.size));
      seen.modified_ns = std::max(seen.modified_ns, answer.modified_ns);
    };
  SWALE_RETURN_IF_ERROR(run(IondMethod::kLook, what, &parts));
  return seen;
}

Result<std::string> Iond::get_attribute(const IondTarget& of, const std::string& attribute) {
  std::string value;
  IondRequest request = request_of(of);
  request.other = attribute;
  SWALE_RETURN_IF_ERROR(run_one(IondMethod::kGetAttribute, of.name + ": its attribute " + attribute, request,
                                [&](const IondAnswer& answer) { value = answer.data; }));
  return value;
}

Result<std::string> Iond::list_attributes(const IondTarget& of) {
  std::string names;
  SWALE_RETURN_IF_ERROR(run_one(IondMethod::kListAttributes, of.name + ": its attributes of users",
                                request_of(of), [&](const IondAnswer& answer) { names = answer.data; }));
  return names;
}

Status Iond::put_attribute(const IondTarget& of, const std::string& attribute, Bytes value, uint32_t flags) {
  std::vector<Part> parts(1);
  parts[0].server = kNamesServer;
  IondRequest& request = parts[0].request;
  request = request_of(of);
  request.other = attribute;
  request.flags = flags;
  parts[0].append_data = [value](std::string* out) { out->append(value); };
  return run(IondMethod::kPutAttribute, of.name + ": its attribute " + attribute, &parts);
}

Status Iond::remove_attribute(const IondTarget& of, const std::string& attribute) {
  IondRequest request = request_of(of);
  request.other = attribute;
  return run_one(IondMethod::kRemoveAttribute, of.name + ": its attribute " + attribute, request);
}

Status Iond::check(const IondFile& file) {
  auto parts = one_for_each_server(file);
  return run(IondMethod::kCheck, file.name + ": what was written", &parts);
}

Status Iond::allocate(const IondFile& file, uint64_t offset, uint64_t length) {
  auto parts = one_for_each_server(file);
  for (Part& part : parts) {
    part.request.offset = file.striping.part_bytes(part.server, offset);
    part.request.length = file.striping.part_bytes(part.server, offset + length) - part.request.offset;
  }
  return run(IondMethod::kAllocate, fmt::format("{}: space for {} bytes at {}", file.name, length, offset),
             &parts);
}

Result<IondSpace> Iond::space() {
  IondSpace all;
  Status failed;
  uint64_t free = UINT64_MAX, available = UINT64_MAX;
  std::vector<Part> parts(hosts_.size());
  for (uint32_t server = 0; server < parts.size(); ++server) {
    parts[server].server = server;
    parts[server].take = [&, server](const IondAnswer& answer) {
      const auto each = decode_iond_space(answer.data);
      if (!each.ok()) failed = each.status();
      if (!each.ok()) return;
      all.bytes += each->bytes;
      free = std::min(free, each->free);
      available = std::min(available, each->available);
      if (server != kNamesServer) return;  // it has the names
      all.files = each->files;
      all.files_free = each->files_free;
    };
  }
  SWALE_RETURN_IF_ERROR(run(IondMethod::kSpace, "the space of the I/O servers", &parts));
  SWALE_RETURN_IF_ERROR(failed);
  all.free = free * servers();
  all.available = available * servers();
  return all;
}

}  // namespace swale::iond
