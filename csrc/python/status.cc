// The codes of csrc/base/status.h as Python compares them, and the two things that carry one: an exception, and the
// reason why a row failed.
#include "base/status.h"

#include <pybind11/pybind11.h>

#include <exception>
#include <string>

#include "python/register.h"
#include "python/values.h"

namespace fastpipe {
namespace {

using namespace pybind11::literals;

// Types of Python; they live as long as the process.
py::handle reason_type;
py::handle error_type;

std::string words_of(const Status& status) {
  std::string text = words(status.code);
  if (status.detail[0] != '\0') text.append(": ").append(status.detail);
  return text;
}

py::object with_code(py::handle type, const Status& status) {
  py::object made = type(words_of(status));
  made.attr("code") = status.code;
  return made;
}

py::object subclass_of(PyTypeObject* base, const char* name) {
  const py::handle type(reinterpret_cast<PyObject*>(&PyType_Type));
  const py::handle parent(reinterpret_cast<PyObject*>(base));
  return type(name, py::make_tuple(parent), py::dict("__module__"_a = "fastpipe._engine", "code"_a = py::none()));
}

}  // namespace

py::object reason_of(const Status& status) { return with_code(reason_type, status); }

void register_status(py::module_& m) {
  py::enum_<Code>(m, "Code")
#define X(name, words) .value(#name, Code::name)
      FASTPIPE_CODES(X)
#undef X
          ;
  reason_type = subclass_of(&PyUnicode_Type, "Reason").release();
  error_type = subclass_of(reinterpret_cast<PyTypeObject*>(PyExc_ValueError), "StatusError").release();
  m.attr("Reason") = reason_type;
  m.attr("StatusError") = error_type;
  m.def(
      "reason", [](Code code, const std::string& detail) { return reason_of(error(code, "%s", detail.c_str())); },
      "code"_a, "detail"_a);
  py::register_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const StatusError& refused) {
      try {
        PyErr_SetObject(error_type.ptr(), with_code(error_type, refused.status).ptr());
      } catch (py::error_already_set& problem) {  // no memory for it
        problem.restore();
      }
    }
  });
}

}  // namespace fastpipe
