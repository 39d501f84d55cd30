#include "key.h"

#include <cstring>

namespace swale::python {
namespace {

std::string type_of(nb::handle object) {
  return nb::cast<std::string>(
      nb::str(nb::type_name(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))))));
}

std::string shown(nb::handle object) { return nb::cast<std::string>(nb::repr(object)); }

std::string encode_number(nb::handle key, bool is_signed) {
  if (!PyIndex_Check(key.ptr())) {
    raise_type("key " + shown(key) + " is of type " + type_of(key) +
               ": this directory's keys are integers (" + (is_signed ? "i64" : "u64") + ")");
  }
  const nb::object number = nb::steal(PyNumber_Index(key.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  std::string bytes(sizeof(uint64_t), '\0');
  const uint64_t value = is_signed ? static_cast<uint64_t>(PyLong_AsLongLong(number.ptr()))
                                   : PyLong_AsUnsignedLongLong(number.ptr());
  if (value == UINT64_MAX && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise_value("key " + shown(key) + ": this directory's keys are integers from " +
                (is_signed ? "-2**63 to 2**63-1" : "0 to 2**64-1"));
  }
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string_view text_of(nb::handle key) {
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(key.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

std::string checked(std::string_view key) {
  if (key.empty() || key.size() > SWALE_KEY_BYTES_MAX)
    raise_value("a key of " + std::to_string(key.size()) + " bytes: keys have 1 to 255");
  return std::string(key);
}

}  // namespace

KeyType key_type_named(std::string_view name) {
  if (name == "u64") return KeyType::kU64;
  if (name == "i64") return KeyType::kI64;
  if (name == "text") return KeyType::kText;
  if (name == "bytes") return KeyType::kBytes;
  return KeyType::kNone;
}

std::string encode_key(nb::handle key, KeyType type) {
  if (type == KeyType::kU64 || type == KeyType::kI64) return encode_number(key, type == KeyType::kI64);
  if (PyUnicode_Check(key.ptr()) && type != KeyType::kBytes) return checked(text_of(key));
  if (PyBytes_Check(key.ptr()) && type != KeyType::kText) {
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(key.ptr(), &data, &size) != 0) throw nb::python_error();
    return checked({data, static_cast<size_t>(size)});
  }
  const char* const expected = type == KeyType::kText ? "keys are text (str)"
                               : type == KeyType::kBytes
                                   ? "keys are bytes"
                                   : "keys have no declared type (imd.key): give bytes or str";
  raise_type("key " + shown(key) + " is of type " + type_of(key) + ": this directory's " + expected);
}

nb::object decode_key(std::string_view key, KeyType type) {
  if ((type == KeyType::kU64 || type == KeyType::kI64) && key.size() == sizeof(uint64_t)) {
    uint64_t value = 0;
    std::memcpy(&value, key.data(), sizeof value);
    return nb::steal(type == KeyType::kU64 ? PyLong_FromUnsignedLongLong(value)
                                           : PyLong_FromLongLong(static_cast<long long>(value)));
  }
  if (type == KeyType::kText) {
    const nb::object text =
        nb::steal(PyUnicode_DecodeUTF8(key.data(), static_cast<Py_ssize_t>(key.size()), "surrogateescape"));
    if (!text.is_valid()) throw nb::python_error();
    return text;
  }
  return nb::bytes(key.data(), key.size());
}

}  // namespace swale::python
