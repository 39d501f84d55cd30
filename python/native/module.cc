#include "arrow.h"
#include "bindings.h"
#include "swale/swale.h"

NB_MODULE(_native, module) {
  module.def("version", &swale_version);
  module.def("code_name", &swale_code_name);
  swale::python::bind_arrow(module);
  swale::python::bind_reader(module);
  swale::python::bind_writer(module);
}
