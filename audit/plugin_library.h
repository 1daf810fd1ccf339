// SPDX-License-Identifier: Apache-2.0
// A plug-in loaded into this process. For the plug-in host: whatever a plug-in does wrong here, it
// does to the caller.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "audit/subject.h"
#include "core/status.h"

namespace attest {

class PluginLibrary : public InProcessSubject {
 public:
  // Loads the library; one line says why it cannot be: no such file, missing symbols, a later
  // version of the interface.
  static StatusOr<std::unique_ptr<PluginLibrary>> Load(const std::filesystem::path& library);

  // The JSON text of attest_plugin_info; empty where the plug-in has none.
  virtual const std::string& info_text() const = 0;
};

}  // namespace attest
