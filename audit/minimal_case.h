// SPDX-License-Identifier: Apache-2.0
// The smallest case found that shows a finding, as a file and as words.
#pragma once

#include <optional>
#include <string>

#include "audit/shrink.h"
#include "audit/subject.h"
#include "core/case.h"

namespace attest {

// Whether an audit of this case alone finds something of this code on this tensor.
bool HasFinding(const Subject& subject, const Case& problem, const std::string& code,
                const std::string& tensor);

// A case shrunk as far as the finding remains, named by code and tensor ("above-bound-out"), which
// is what its file is to be called: laws draw by a case's name. Nothing where the finding does not
// show when the case is run alone, or under that name.
std::optional<Case> MinimalCase(const Subject& subject, const Case& failing,
                                const std::string& code, const std::string& tensor,
                                const ShrinkLimits& limits = {});

// "1 batch entry, 1 query head, 1 query, 2 keys, D_k 1, D_v 1, f32, causal top-left; k = [0, 1],
// ..." : the sizes, the features, and the tensors that are short.
std::string Describe(const Case& problem);

}  // namespace attest
