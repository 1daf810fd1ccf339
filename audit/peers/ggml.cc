// SPDX-License-Identifier: Apache-2.0
#include "audit/peers/ggml.h"

#include <filesystem>
#include <string_view>

namespace attest {
namespace {

// The build that rates itself highest; 0 is "cannot run". `name`: "sapphirerapids".
StatusOr<SharedLibrary> BestBuild(const std::filesystem::path& folder, std::string* name) {
  constexpr std::string_view kPrefix = "libggml-cpu-";
  int best_score = 0;
  std::filesystem::path best;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    if (!stem.starts_with(kPrefix)) continue;
    const StatusOr<SharedLibrary> library = SharedLibrary::Open(entry.path().string());
    int (*score)() = nullptr;
    if (!library.ok() || !library->Find("ggml_backend_score", &score)) continue;
    if (const int value = score(); value > best_score) {
      best_score = value;
      best = entry.path();
      *name = stem.substr(kPrefix.size());
    }
  }
  if (best_score == 0) return NotFound(folder.string() + ": no build for this machine");
  return SharedLibrary::Open(best.string());
}

}  // namespace

bool GgmlFunctions::FindAll(const SharedLibrary& base, const SharedLibrary& cpu) {
  return base.Find("ggml_init", &init) && base.Find("ggml_free", &free) &&
         base.Find("ggml_new_tensor_4d", &new_tensor) && base.Find("ggml_get_data", &get_data) &&
         base.Find("ggml_flash_attn_ext", &flash_attention) &&
         base.Find("ggml_flash_attn_ext_add_sinks", &add_sinks) &&
         base.Find("ggml_new_graph", &new_graph) &&
         base.Find("ggml_build_forward_expand", &build_forward) &&
         base.Find("ggml_version", &version) && cpu.Find("ggml_backend_cpu_init", &cpu_init) &&
         cpu.Find("ggml_backend_cpu_set_n_threads", &set_threads) &&
         base.Find("ggml_backend_free", &backend_free) &&
         base.Find("ggml_backend_graph_compute", &compute);
}

StatusOr<std::shared_ptr<Ggml>> Ggml::Load() {
  const auto folder = FindPeerFile(kGgmlFolder);
  if (!folder) return NotFound("package @node-llama-cpp/linux-x64 not found (make peers)");
  const StatusOr<SharedLibrary> base = SharedLibrary::Open((*folder / "libggml-base.so").string());
  if (!base.ok()) return base.status();
  std::string build;
  const StatusOr<SharedLibrary> cpu = BestBuild(*folder, &build);
  if (!cpu.ok()) return cpu.status();
  auto ggml = std::make_shared<Ggml>();
  if (!ggml->f.FindAll(*base, *cpu))
    return NotFound(folder->string() + ": not the functions of ggml");
  ggml->changed_fp_state = base->changed_fp_state() || cpu->changed_fp_state();
  ggml->version = std::string(ggml->f.version()) + ", build " + build;
  ggml->backend = ggml->f.cpu_init();
  return ggml;
}

Ggml::~Ggml() {
  if (backend != nullptr) f.backend_free(backend);
}

}  // namespace attest
