// The parts of the module swale._native.
#pragma once

#include <nanobind/nanobind.h>

namespace swale::python {

void bind_reader(nanobind::module_& module);
void bind_writer(nanobind::module_& module);

}  // namespace swale::python
