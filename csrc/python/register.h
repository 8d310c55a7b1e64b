// The topics of the extension: each adds its names to the module.
#pragma once

#include <pybind11/pybind11.h>

namespace fastpipe {

void register_status(pybind11::module_& m);
void register_engine(pybind11::module_& m);
void register_pictures(pybind11::module_& m);
void register_masks(pybind11::module_& m);
void register_coefficients(pybind11::module_& m);
void register_memory_rows(pybind11::module_& m);
void register_plan(pybind11::module_& m);
void register_packing(pybind11::module_& m);
void register_headers(pybind11::module_& m);
void register_resize(pybind11::module_& m);

}  // namespace fastpipe
