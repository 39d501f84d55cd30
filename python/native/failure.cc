#include "failure.h"

#include <unistd.h>

namespace swale::python {
namespace {

constexpr uint32_t kCallsPerLook = 256;
constexpr std::chrono::milliseconds kPatience(50);

Failure copy_of(const swale_error_info& info) {
  return {info.code, info.message, info.file, info.offset, info.epoch, info.partition};
}

}  // namespace

Failure Failure::of_this_thread() {
  swale_error_info info = {};
  info.struct_bytes = sizeof info;
  if (swale_last_error_info(&info) != SWALE_OK) return {};
  return copy_of(info);
}

Failure Failure::of_stream(const ArrowArrayStream* stream) {
  swale_error_info info = {};
  info.struct_bytes = sizeof info;
  if (swale_stream_error(stream, &info) != SWALE_OK) return of_this_thread();
  return copy_of(info);
}

void Failure::raise() const {
  const nb::object make = nb::module_::import_("swale._errors").attr("make");
  const nb::object error = make(code, message, file, offset, epoch, partition);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void raise_value(const std::string& message) {
  PyErr_SetString(PyExc_ValueError, message.c_str());
  throw nb::python_error();
}

void raise_type(const std::string& message) {
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw nb::python_error();
}

bool is_main_thread() { return ::gettid() == ::getpid(); }

bool Signals::arrived() {
  if (arrived_) return true;
  if (++calls_ % kCallsPerLook != 0) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ < kPatience) return false;
  asked_ = now;
  if (!is_main_thread()) return false;
  const nb::gil_scoped_acquire gil;
  arrived_ = PyErr_CheckSignals() != 0;
  return arrived_;
}

}  // namespace swale::python
