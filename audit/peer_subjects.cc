// SPDX-License-Identifier: Apache-2.0
#include "audit/peer_subjects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "audit/installed_places.h"
#include "audit/peers/ggml.h"
#include "audit/peers/onednn.h"
#include "audit/peers/onnxruntime.h"
#include "audit/peers/openblas.h"
#include "audit/peers/shared_library.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

enum class Where { kNodeModules, kSystemLibrary, kPython };

struct Row {
  const char* name;
  const char* description;
  const char* licence;
  Where where;
  const char* what;  // a file of node_modules, a library's name, or the adapter's argument
};

constexpr Row kRows[] = {
    {"onnxruntime", "ONNX Runtime, operator Attention of ONNX, opset 23 and 24", "MIT",
     Where::kNodeModules, kOnnxRuntimeFile},
    {"onnxruntime-mha", "ONNX Runtime, operator MultiHeadAttention of com.microsoft", "MIT",
     Where::kNodeModules, kOnnxRuntimeFile},
    {"onnxruntime-gqa", "ONNX Runtime, operator GroupQueryAttention of com.microsoft", "MIT",
     Where::kNodeModules, kOnnxRuntimeFile},
    {"ggml", "ggml (llama.cpp), ggml_flash_attn_ext", "MIT", Where::kNodeModules, kGgmlFolder},
    {"onednn", "oneDNN, primitives matmul, softmax, matmul", "Apache-2.0", Where::kSystemLibrary,
     kOneDnnLibrary},
    {"openblas", "textbook attention on OpenBLAS, a control", "BSD-3-Clause", Where::kSystemLibrary,
     kOpenBlasLibrary},
    {"torch", "PyTorch, matmul, softmax, matmul; with gradients", "BSD-3-Clause", Where::kPython,
     "math"},
    {"torch-sdpa", "PyTorch, scaled_dot_product_attention; with gradients", "BSD-3-Clause",
     Where::kPython, "sdpa"},
};

// The file in the first of the places in which it is.
std::optional<fs::path> FindBesideCommand(const char* variable, const char* installed,
                                          const char* source, const std::string& file) {
  std::error_code error;
  for (const fs::path& folder : PlacesOf(variable, installed, source)) {
    if (fs::exists(folder / file, error)) return folder / file;
  }
  return std::nullopt;
}

std::optional<fs::path> PluginOf(const Row& row) {
  return FindBesideCommand("ATTEST_PEER_PLUGINS", "libexec/attest/peers", ATTEST_BUILT_PEERS,
                           fmt::format("attest_peer_{}.so", row.name));
}

std::optional<fs::path> Adapter() {
  return FindBesideCommand("ATTEST_ADAPTERS", "share/attest/adapters", ATTEST_SOURCE_ADAPTERS,
                           "torch_attention.py");
}

bool SystemHasLibrary(const std::string& name) {
  std::vector<std::string> folders{"/usr/local/lib", "/usr/lib/" ATTEST_LIBRARY_ARCHITECTURE,
                                   "/lib/" ATTEST_LIBRARY_ARCHITECTURE, "/usr/lib64", "/usr/lib"};
  if (const char* path = std::getenv("LD_LIBRARY_PATH"); path != nullptr) {
    std::istringstream stream(path);
    for (std::string folder; std::getline(stream, folder, ':');) folders.push_back(folder);
  }
  std::error_code error;
  for (const std::string& folder : folders) {
    if (fs::exists(fs::path(folder) / name, error)) return true;
  }
  return false;
}

// The first python3 that would find the modules: that of the path, or the system's. They are not
// imported, which takes seconds.
std::optional<std::string> PythonWithTorch() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const std::string command = fmt::format(
        "{} -c 'import importlib.util as u, sys; "
        "sys.exit(not (u.find_spec(\"torch\") and u.find_spec(\"numpy\")))' "
        ">/dev/null 2>&1",
        python);
    if (std::system(command.c_str()) == 0) return python;
  }
  return std::nullopt;
}

std::string MissingOf(const Row& row) {
  switch (row.where) {
    case Where::kNodeModules:
      if (!FindPeerFile(row.what)) return fmt::format("{} is not there (make peers)", row.what);
      break;
    case Where::kSystemLibrary:
      if (!SystemHasLibrary(row.what)) return fmt::format("{} is not there (make peers)", row.what);
      break;
    case Where::kPython:
      if (!PythonWithTorch()) return "python3 has no modules torch and numpy (make peers)";
      return Adapter() ? "" : "torch_attention.py is not there (set ATTEST_ADAPTERS to its folder)";
  }
  return PluginOf(row) ? "" : "its plug-in is not there (set ATTEST_PEER_PLUGINS to its folder)";
}

}  // namespace

std::vector<PeerEntry> Peers() {
  std::vector<PeerEntry> peers;
  for (const Row& row : kRows) {
    peers.push_back({row.name, row.description, row.licence, MissingOf(row)});
  }
  return peers;
}

StatusOr<std::unique_ptr<Subject>> MakePeerSubject(const std::string& name,
                                                   const ProcessLimits& limits) {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    names.emplace_back(row.name);
    if (name != row.name) continue;
    if (const std::string missing = MissingOf(row); !missing.empty()) {
      return NotFound(fmt::format("peer '{}': {}", name, missing));
    }
    if (row.where != Where::kPython) return MakePluginSubject(*PluginOf(row), limits);
    return MakeExecSubject(
        fmt::format("{} {} {}", *PythonWithTorch(), ShellQuoted(Adapter()->string()), row.what),
        limits);
  }
  return NotFound(fmt::format("no peer '{}' (known: {})", name, fmt::join(names, ", ")));
}

}  // namespace attest
