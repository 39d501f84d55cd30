#include <algorithm>

#include "imd/read/reader_values.h"
#include "tools/bytes_text.h"
#include "tools/dump.h"

namespace swale::tools {
namespace {

// Whether the bytes are zeros, as between two epochs.
Result<bool> zeros(io::File& file, uint64_t begin, uint64_t end) {
  std::string bytes(end - begin, '\1');
  SWALE_RETURN_IF_ERROR(io::read_exactly(file, begin, bytes));
  return bytes.find_first_not_of('\0') == std::string::npos;
}

}  // namespace

// Shows entry after entry. The walk ends at a damaged head, as the place of the next entry is unknown.
Status dump_value_log(io::Device& device, const std::string& path, PartitionNumber writer, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  for (uint64_t at = 0; at < size;) {
    if (const uint64_t next = file->next_data(at) / run::kValueAlignment * run::kValueAlignment; next > at) {
      at = next;  // a hole, as between two epochs
      continue;
    }
    auto head = imd::read_value_head(*file, writer, at);
    if (!head.ok()) {
      const uint64_t next = round_up(at + 1, run::kValueAlignment);
      SWALE_ASSIGN_OR_RETURN(const bool gap, zeros(*file, at, std::min(next, size)));
      if (!gap) {
        out->damage(at, head.status());
        return {};
      }
      at = next;
      continue;
    }
    out->progress(at, size);
    out->line({{"what", "value"},
               {"offset", at},
               {"epoch", head->epoch.value()},
               {"epoch_id", hex16(head->epoch_id)},
               {"writer", head->writer.value()},
               {"key_hash", hex16(head->key_hash)},
               {"bytes", head->value_bytes},
               {"pieces", head->pieces.size()},
               {"checksum", fmt::format("{:08x}", head->checksum)}});
    if (const Status read = imd::check_value(*file, *head, {}); !read.ok()) out->damage(at, read);
    at = head->end_offset();
  }
  return {};
}

// Page after page; a page that is damaged leaves the next ones where they are.
Status dump_value_pages(io::Device& device, const std::string& path, PartitionNumber writer,
                        DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  std::string page(run::kValuePageBytes, '\0');
  for (uint64_t at = 0; at < size; at += page.size()) {
    page.resize(std::min<uint64_t>(page.size(), size - at));
    SWALE_RETURN_IF_ERROR(io::read_exactly(*file, at, page));
    out->progress(at, size);
    const auto trailer = run::verify_value_page(page, writer, at / run::kValuePageBytes, path);
    if (!trailer.ok()) {
      out->damage(at, trailer.status());
      continue;
    }
    out->line({{"what", "page"},
               {"offset", at},
               {"position", at / run::kValuePageBytes * run::kValuePagePayloadBytes},
               {"epoch", trailer->epoch.value()},
               {"epoch_id", hex16(trailer->epoch_id)},
               {"values", trailer->values},
               {"first_start", trailer->first_start},
               {"crc32c", fmt::format("{:08x}", trailer->crc32c)}});
  }
  return {};
}

}  // namespace swale::tools
