// A Status as bytes and back, for messages between ranks of one job.
//
// Format (little-endian): u8 code | u8 scope | u16 errno, 0 if it came from no system call | sized text, cut
// to 1 KiB
// Threads: any.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/status.h"

namespace swale::net {

void append_status(std::string* out, const Status& status);
// A code or scope that this build does not know becomes kInternal, with the text; an errno that Linux cannot
// have becomes none. The caller checks in->ok().
Status read_status(Decoder* in);

std::string encode_status(const Status& status);
// kCorruption if `bytes` are no status, and `status` is untouched then.
Status decode_status(Bytes bytes, Status* status);

}  // namespace swale::net
