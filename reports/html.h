// SPDX-License-Identifier: Apache-2.0
// The page: one HTML file that needs no script and nothing from outside.
#pragma once

#include <string>

#include "reports/model.h"

namespace attest::reports {

std::string HtmlOf(const Report& report);

// One card per experiment and per implementation (html_experiment.cc, html_audit.cc).
std::string ExperimentHtml(const Entry& experiment);
std::string AuditHtml(const Entry& audit);

// What produced the records, and the commands that do it again (html_manifest.cc).
std::string ManifestHtml(const Report& report);
std::string ReproduceHtml(const Report& report);

}  // namespace attest::reports
