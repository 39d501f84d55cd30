// Keys as Python gives them and as the directory stores them (option imd.key).
#pragma once

#include <string>
#include <string_view>

#include "failure.h"

namespace swale::python {

enum class KeyType { kU64, kI64, kText, kBytes, kNone };

KeyType key_type_named(std::string_view name);

// Raises TypeError for a key of another type, and ValueError for a number that no key can be.
std::string encode_key(nb::handle key, KeyType type);
nb::object decode_key(std::string_view key, KeyType type);

}  // namespace swale::python
