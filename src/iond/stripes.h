// Stripes: what a file on server 0 says about its parts on the other servers, in its attribute.
//
// Threads: free functions. Errors: kCorruption: it is damaged; kUnsupported: of a later version.
// Format: docs/formats/iond.md.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "io/descriptor.h"
#include "iond/striping.h"

namespace swale::iond {

inline constexpr const char* kStripesAttribute = "user.swale.stripes";

struct Stripes {
  uint64_t id = 0;  // of the file
  Striping striping;
};

// "1 ID STRIPE SERVERS FIRST"; people can read it.
std::string text_of(const Stripes& stripes);

// Of a descriptor (O_PATH also). None: the file has no such attribute. `path`: for messages.
Result<std::optional<Stripes>> read_stripes(const io::Descriptor& file, const std::string& path);

// kInvalidArgument: a client stripes in another way.
Status expect_stripes(const std::string& path, const Stripes& found, const Striping& wanted);

}  // namespace swale::iond
